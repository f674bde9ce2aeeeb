#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/graph/dtype.hpp"
#include "kernels/narrow_float.hpp"

#include <cstddef>
#include <stdexcept>
#include <type_traits>

// Views of floating-point numbers whose type is known only at run time. The type is the same for
// all threads, so all threads take the same branch.

namespace troupe::cuda {

/// A view of float32, bfloat16 or float16 in device memory. Elements are converted to float32.
struct mixed_view {
  const void* data = nullptr;
  std::size_t size = 0;
  dtype type = dtype::float32;

  TROUPE_DEVICE float load(std::size_t i) const {
    if (type == dtype::bfloat16)
      return widened(view<const bfloat16>{static_cast<const bfloat16*>(data), size}.load(i));
    if (type == dtype::float16)
      return widened(view<const float16>{static_cast<const float16*>(data), size}.load(i));
    return view<const float>{static_cast<const float*>(data), size}.load(i);
  }
};

/// Like mixed_view, for writing. Elements are rounded from float32 to `type`.
struct mixed_target {
  void* data = nullptr;
  std::size_t size = 0;
  dtype type = dtype::float32;

  TROUPE_DEVICE void store(std::size_t i, float x) const {
    if (type == dtype::bfloat16)
      view<bfloat16>{static_cast<bfloat16*>(data), size}.store(i, rounded_to<bfloat16>(x));
    else if (type == dtype::float16)
      view<float16>{static_cast<float16*>(data), size}.store(i, rounded_to<float16>(x));
    else
      view<float>{static_cast<float*>(data), size}.store(i, x);
  }
};

// Views of elements of 16 bits whose type is known at compile time. Kernels with these views need
// fewer registers.

template <class T>
struct narrow_view {
  const T* data = nullptr;
  std::size_t size = 0;

  TROUPE_DEVICE float load(std::size_t i) const {
    return widened(view<const T>{data, size}.load(i));
  }
};

template <class T>
struct narrow_target {
  T* data = nullptr;
  std::size_t size = 0;

  TROUPE_DEVICE void store(std::size_t i, float x) const {
    view<T>{data, size}.store(i, rounded_to<T>(x));
  }
};

// -- packs of these views, as in kernel.hpp

template <class T, unsigned W>
TROUPE_DEVICE pack<float, W> widened_pack(const pack<T, W>& x) {
  pack<float, W> result;
  TROUPE_UNROLL
  for (unsigned k = 0; k < W; ++k)
    result.x[k] = widened(x.x[k]);
  return result;
}
template <class T, unsigned W>
TROUPE_DEVICE pack<T, W> rounded_pack(const pack<float, W>& x) {
  pack<T, W> result;
  TROUPE_UNROLL
  for (unsigned k = 0; k < W; ++k)
    result.x[k] = rounded_to<T>(x.x[k]);
  return result;
}

template <class T, unsigned W>
TROUPE_DEVICE pack<float, W> load_floats(width<W>, const narrow_view<T>& x, std::size_t i) {
  return widened_pack(view<const T>{x.data, x.size}.template load_pack<W>(i));
}
template <class T, unsigned W>
TROUPE_DEVICE pack<T, W> load_stored(width<W>, const narrow_view<T>& x, std::size_t i) {
  return view<const T>{x.data, x.size}.template load_pack<W>(i);
}
template <class T, unsigned W>
TROUPE_DEVICE pack<float, W> floats_of(const pack<T, W>& x) {
  return widened_pack(x);
}
template <class T, unsigned W>
TROUPE_DEVICE void store_floats(const narrow_target<T>& to, std::size_t i,
                                const pack<float, W>& x) {
  view<T>{to.data, to.size}.template store_pack<W>(i, rounded_pack<T>(x));
}
template <unsigned W>
TROUPE_DEVICE pack<float, W> load_floats(width<W> w, const mixed_view& x, std::size_t i) {
  if (x.type == dtype::bfloat16)
    return load_floats(w, narrow_view<bfloat16>{static_cast<const bfloat16*>(x.data), x.size}, i);
  if (x.type == dtype::float16)
    return load_floats(w, narrow_view<float16>{static_cast<const float16*>(x.data), x.size}, i);
  return load_floats(w, view<const float>{static_cast<const float*>(x.data), x.size}, i);
}
template <unsigned W>
TROUPE_DEVICE void store_floats(const mixed_target& to, std::size_t i, const pack<float, W>& x) {
  if (to.type == dtype::bfloat16)
    store_floats(narrow_target<bfloat16>{static_cast<bfloat16*>(to.data), to.size}, i, x);
  else if (to.type == dtype::float16)
    store_floats(narrow_target<float16>{static_cast<float16*>(to.data), to.size}, i, x);
  else
    store_floats(view<float>{static_cast<float*>(to.data), to.size}, i, x);
}

/// Loads elements [i, i + W): as a pack if `packed` is true, otherwise one by one. A thread gets
/// the same elements in both cases, so that the order of additions does not depend on addresses.
template <unsigned W, class In>
TROUPE_DEVICE pack<double, W> load_doubles(width<W> n, const In& x, std::size_t i, bool packed) {
  pack<double, W> result;
  if (packed) {
    const auto floats = load_floats(n, x, i);
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k)
      result.x[k] = static_cast<double>(floats.x[k]);
  } else {
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k)
      result.x[k] = static_cast<double>(x.load(i + k));
  }
  return result;
}

/// The address of a view's elements.
template <class T>
element_address address_of(const view<T>& x) {
  return {x.data, sizeof(T)};
}
template <class T>
element_address address_of(const narrow_view<T>& x) {
  return {x.data, sizeof(T)};
}
template <class T>
element_address address_of(const narrow_target<T>& x) {
  return {x.data, sizeof(T)};
}
inline element_address address_of(const mixed_view& x) {
  return {x.data, size_of(x.type)};
}
inline element_address address_of(const mixed_target& x) {
  return {x.data, size_of(x.type)};
}

/// n elements that a launch reads.
struct read_elements {
  mixed_input x;
  std::size_t n = 0;
};

/// Calls f(view of the result, view<const T> of each input), where T is the type of the elements. f
/// launches a kernel that is compiled for T. Throws std::invalid_argument unless the result and all
/// inputs have the same type.
template <class F, class... Inputs>
void with_elements(mixed_output out, std::size_t n, F f, const Inputs&... inputs) {
  if (((inputs.x.type != out.type) || ...))
    throw std::invalid_argument("a kernel got operands of different types");
  const auto call = [&]<class T>(T, auto to) {
    f(to, view<const T>{static_cast<const T*>(inputs.x.data), inputs.n}...);
  };
  if (out.type == dtype::bfloat16)
    call(bfloat16{}, narrow_target<bfloat16>{static_cast<bfloat16*>(out.data), n});
  else if (out.type == dtype::float16)
    call(float16{}, narrow_target<float16>{static_cast<float16*>(out.data), n});
  else
    call(float{}, view<float>{static_cast<float*>(out.data), n});
}

/// Like with_elements, for a kernel that computes in float32: its views convert elements of 16 bits
/// to float32 when they are loaded.
template <class F, class... Inputs>
void with_views(mixed_output out, std::size_t n, F f, const Inputs&... inputs) {
  const auto widening = []<class T>(const view<const T>& x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return narrow_view<T>{x.data, x.size};
  };
  with_elements(
    out, n, [&](auto to, const auto&... from) { f(to, widening(from)...); }, inputs...);
}

/// Like with_views, for a kernel that has a single input, and no result whose type varies. Calls
/// f(view of the input).
template <class F>
void with_view(const read_elements& x, F f) {
  with_views(
    mixed_output{nullptr, x.x.type}, 0, [&](auto, auto from) { f(from); }, x);
}

} // namespace troupe::cuda
