#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace troupe {

template <class Signature>
class function_ref;

/// A reference to a callable, for use as a function parameter. It is like std::function, but it
/// consists of two pointers, owns nothing and allocates nothing. The callable must exist until the
/// function that takes the reference has returned. A default-constructed function_ref is empty;
/// calling it is undefined behaviour.
template <class R, class... Args>
class function_ref<R(Args...)> {
public:
  function_ref() = default;

  template <class F,
            class = std::enable_if_t<
              !std::is_same_v<std::remove_cvref_t<F>,
                              function_ref> && std::is_invocable_r_v<R, F&, Args...>>>
  function_ref(F&& f) noexcept // NOLINT: implicit, like std::function
    : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
      call_([](void* object, Args... args) -> R {
        return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
      }) {}

  explicit operator bool() const noexcept { return call_ != nullptr; }
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

private:
  void* object_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

} // namespace troupe
