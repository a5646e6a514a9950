#ifndef FA_TORCH_H_
#define FA_TORCH_H_

/// @file
/// PyTorch's own attention operators for CPUs, computed by fa, in library libfa_torch (target fa::torch).
/// The functions are C functions, so a program may load the library at run time.
/// @code{.cpp}
/// fa_torch_activate();
/// // at::scaled_dot_product_attention now reaches fa where PyTorch chooses its fused CPU kernel.
/// fa_torch_deactivate();
/// @endcode

#include <stdint.h>  // NOLINT(modernize-deprecated-headers): C programs include this header

#define FA_TORCH_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// Puts fa's kernels into PyTorch's dispatcher, for the whole process. A second call changes nothing. If the
/// environment variable FA_TORCH_ACTIVATE is 1, the library does this when it is loaded.
/// @return 0, or -1 if PyTorch refuses
FA_TORCH_API int fa_torch_activate(void);

/// Takes fa's kernels out of the dispatcher, even if Python's fa.torch or the variable FA_TORCH_ACTIVATE put them in.
/// No thread may be inside one of these kernels while this function runs. Without an activation, the function does
/// nothing.
FA_TORCH_API void fa_torch_deactivate(void);

/// Returns how many calls of an operator, such as "_scaled_dot_product_flash_attention_for_cpu", have reached fa's
/// kernel since the library was loaded. Returns 0 for other names.
FA_TORCH_API uint64_t fa_torch_calls(const char* op);

/// Returns the version of the headers of fa with which the library was compiled. The libfa that is loaded must have the
/// same version.
FA_TORCH_API const char* fa_torch_version(void);

#ifdef __cplusplus
}
#endif

#endif  // FA_TORCH_H_
