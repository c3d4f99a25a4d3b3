// The one place where Boost.JSON is compiled; everything else includes its declarations.
#include <boost/json/src.hpp>
