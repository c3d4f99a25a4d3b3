// Boost.JSON is compiled here and nowhere else; all other sources include its declarations.
#include <boost/json/src.hpp>
