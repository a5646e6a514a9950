#ifndef FA_ACLNN_DEFAULT_FP_ENVIRONMENT_H_
#define FA_ACLNN_DEFAULT_FP_ENVIRONMENT_H_

#include <cfenv>

namespace fa::aclnn {

/// While an object of this class lives, its thread has the floating-point settings of a new thread: rounding to
/// nearest, denormals kept, exceptions masked. The destructor restores the caller's settings and exception flags
/// exactly.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFpEnvironment() { std::fesetenv(&callers_); }
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_DEFAULT_FP_ENVIRONMENT_H_
