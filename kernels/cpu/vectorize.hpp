#pragma once

/// Before a loop over elements: no iteration reads what another one writes, whatever the pointers
/// look like. Other compilers than g++ find out at run time; clang's pragma of that meaning is an
/// order, with a warning where it cannot be carried out.
#if defined(__GNUC__) && !defined(__clang__)
#define TROUPE_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TROUPE_INDEPENDENT
#endif

/// Before a loop over the registers of a tile: n iterations at most, all of them written out.
#define TROUPE_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(unroll n)
#else
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(GCC unroll n)
#endif
