#pragma once

/// Before a loop over elements: no iteration reads what another one writes, whatever the pointers
/// look like. Other compilers than g++ find out at run time; clang's pragma of that meaning is an
/// order, with a warning where it cannot be carried out.
#if defined(__GNUC__) && !defined(__clang__)
#define TROUPE_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TROUPE_INDEPENDENT
#endif
