#ifndef FA_ACL_ACL_H_
#define FA_ACL_ACL_H_

/// The acl runtime on a CPU: programs written for the device compile against it and link libfa_aclnn.
#include "acl/acl_base.h"
#include "acl/acl_rt.h"
#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/// @param configPath  ignored
/// @return ACL_ERROR_REPEAT_INITIALIZE if aclInit was called before, without aclFinalize since
ACL_FUNC_VISIBILITY aclError aclInit(const char* configPath);
/// Waits for every stream. @return ACL_ERROR_UNINITIALIZE without aclInit
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACL_ACL_H_
