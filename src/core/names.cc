#include "fa/tensor.h"

namespace fa {

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI8: return "i8";
    case DType::kU8: return "u8";
    case DType::kBool: return "bool";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kU64: return "u64";
    case DType::kF8E4M3: return "f8e4m3";
    case DType::kF8E5M2: return "f8e5m2";
    case DType::kI4x8: return "i4x8";
  }
  return "unknown";
}

const char* Name(Layout layout) {
  switch (layout) {
    case Layout::kBNSD: return "BNSD";
    case Layout::kBSND: return "BSND";
    case Layout::kBSH: return "BSH";
    case Layout::kSBH: return "SBH";
    case Layout::kTND: return "TND";
    case Layout::kBNSD_BSND: return "BNSD_BSND";
    case Layout::kNTD: return "NTD";
    case Layout::kNSD: return "NSD";
    case Layout::kBSH_BNSD: return "BSH_BNSD";
    case Layout::kBSND_BNSD: return "BSND_BNSD";
    case Layout::kBSH_NBSD: return "BSH_NBSD";
    case Layout::kBSND_NBSD: return "BSND_NBSD";
    case Layout::kBNSD_NBSD: return "BNSD_NBSD";
    case Layout::kTND_NTD: return "TND_NTD";
    case Layout::kNTD_TND: return "NTD_TND";
  }
  return "unknown";
}

}  // namespace fa
