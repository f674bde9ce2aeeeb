#pragma once

/// Put this before a loop over elements. It tells g++ that no iteration reads an element that
/// another iteration writes, which the compiler often cannot prove. Other compilers get no hint,
/// and check for overlapping memory at run time. (clang has an equivalent pragma, but that pragma
/// demands vectorization and warns if it is impossible.)
#if defined(__GNUC__) && !defined(__clang__)
#define TROUPE_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TROUPE_INDEPENDENT
#endif

/// Put this before a loop over the registers of a tile. It unrolls up to n iterations.
#define TROUPE_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(unroll n)
#else
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(GCC unroll n)
#endif
