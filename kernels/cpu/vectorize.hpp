#pragma once

/// Put this before a loop over elements. It states that no iteration reads an element that another
/// one writes, even if pointers may alias. Compilers other than g++ check this at run time: clang's
/// equivalent pragma demands vectorization and warns if it is impossible.
#if defined(__GNUC__) && !defined(__clang__)
#define TROUPE_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TROUPE_INDEPENDENT
#endif

/// Put before a loop over the registers of a tile: unrolls up to n iterations.
#define TROUPE_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(unroll n)
#else
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(GCC unroll n)
#endif
