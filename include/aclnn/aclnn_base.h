#ifndef FA_ACLNN_ACLNN_BASE_H_
#define FA_ACLNN_ACLNN_BASE_H_

#include "acl/acl_base.h"
#include "acl/acl_rt.h"
#include "aclnn/acl_meta.h"

#endif  // FA_ACLNN_ACLNN_BASE_H_
