#ifndef FA_CORE_FUNCTION_REF_H_
#define FA_CORE_FUNCTION_REF_H_

#include <type_traits>

namespace fa::core {

/// A reference to a callable object, which must outlive the reference. A call costs one indirect call and allocates
/// nothing.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cv_t<Callable>, FunctionRef>)  // for a FunctionRef, the copy constructor is used
      explicit FunctionRef(Callable& callable)
      : self_(&callable), call_([](void* self, Arguments... arguments) -> Result {
          return (*static_cast<Callable*>(self))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(self_, arguments...); }

 private:
  void* self_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace fa::core

#endif  // FA_CORE_FUNCTION_REF_H_
