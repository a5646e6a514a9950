#ifndef FA_FA_H_
#define FA_FA_H_

/// Everything of `fa`: attention on CPUs.
#include "fa/context.h"
#include "fa/error_text.h"
#include "fa/mask.h"
#include "fa/operators.h"
#include "fa/options.h"
#include "fa/overlap.h"
#include "fa/plan.h"
#include "fa/plan_info.h"
#include "fa/rank_schedule.h"
#include "fa/ranked_attention.h"
#include "fa/sequence_shards.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "fa/transport.h"
#include "fa/version.h"
#include "fa/view.h"
#include "fa/workspace.h"

#endif  // FA_FA_H_
