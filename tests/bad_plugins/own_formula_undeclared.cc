// This attention does the same as own_formula.cc's without its declaration.
#define TENON_BAD_UNDECLARED
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // one library includes it once
#endif
#include "own_formula.cc"
