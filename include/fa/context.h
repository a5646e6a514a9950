#ifndef FA_CONTEXT_H_
#define FA_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fa/export.h"
#include "fa/status.h"

namespace fa {

namespace core {
struct ContextAccess;  // lets parts of the library read what a context holds
}

/// Instruction-set levels. `portable` runs on any CPU; the others are two families, of x86-64 and of aarch64, in which
/// each level includes the ones before it.
enum class Isa : uint8_t {
  kPortable,
  kAvx2,         ///< x86-64: AVX2, FMA, F16C
  kAvx512,       ///< AVX-512 F, BW, DQ, VL
  kAvx512Vnni,   ///< and int8 dot products
  kAvx512Bf16,   ///< and bf16 dot products
  kAvx512Amx,    ///< and the tile unit (AMX), of bf16 and int8
  kNeon,         ///< aarch64: Advanced SIMD, which every such CPU has
  kNeonDotprod,  ///< and int8 dot products (SDOT)
  kNeonBf16,     ///< and products of bf16 and int8 blocks (BFMMLA, SMMLA)
  kAmxEmulated,  ///< for tests: avx512_amx's tile products in plain C++, on any CPU, in a library built with its tests
};

/// Every level, of this machine's family or not, in the order of the enumeration; kAmxEmulated where the library has
/// it.
[[nodiscard]] FA_API std::span<const Isa> AllIsas();
/// Whether a CPU of `level` runs what was written for `part`.
[[nodiscard]] FA_API bool Includes(Isa level, Isa part);
/// "portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx", "neon", "neon_dotprod", "neon_bf16",
/// "amx_emulated".
[[nodiscard]] FA_API const char* Name(Isa isa);
/// All of them, for messages: "portable, avx2 ... or neon_bf16".
[[nodiscard]] FA_API std::string IsaNames();
/// The level of that name, or nothing.
[[nodiscard]] FA_API std::optional<Isa> ParseIsa(const std::string& name);
/// The highest level this CPU has. Where it has the tile unit, the first call asks Linux for the permission to use it
/// (arch_prctl), for the whole process; without it the level is avx512_bf16. Some hypervisors hide features that the
/// CPU has: environment FA_ASSUME_ISA names a level to be taken for granted (if the CPU lacks it after all, the process
/// ends by SIGILL).
[[nodiscard]] FA_API Isa DetectIsa();

/// How sums over blocks are ordered.
enum class Accumulation : uint8_t {
  kDeterministic,  ///< bits do not depend on the number of threads, the run, or the other sequences in the call
  kAtomicFree,     ///< allows an operator to reorder sums for speed, by private partial sums and not by atomics. No
                   ///< operator uses this today: the bits equal those of kDeterministic, but that is not promised
};

/// Where threads and packed panels live.
enum class NumaPolicy : uint8_t {
  kSpread,  ///< a head's tasks stay on one NUMA node; nodes are filled evenly
  kIgnore,  ///< one arena over all cores
};

/// How a context is made. Every field has a default.
struct ContextOptions {
  /// 0: environment FA_NUM_THREADS (1..65536), else every core of the process' affinity mask, at most what its control
  /// groups grant (docs/threads.md)
  int threads = 0;
  std::optional<Isa> isa = {};  ///< default: environment FA_FORCE_ISA, else the fastest (docs/kernels.md)
  Accumulation accumulation = Accumulation::kDeterministic;
  NumaPolicy numa = NumaPolicy::kSpread;
  /// OpenBLAS as product engine of the portable level; outside the promise of equal bits. Default: environment
  /// FA_PORTABLE_BLAS=1.
  std::optional<bool> portable_blas = {};
};

/// A machine that plans are made for; it need not be this one.
struct MachineOptions {
  Isa isa = Isa::kPortable;
  int cores = 1;       ///< 1..65536, each a thread
  int numa_nodes = 1;  ///< at most cores
  /// L1 and L2 of one core. 0: the smallest of the level's servers, 32 KiB and 256 KiB (portable, avx2), 32 KiB and
  /// 1 MiB (avx512), 64 KiB and 512 KiB (neon; Kunpeng 920).
  int64_t l1_bytes = 0, l2_bytes = 0;
  Accumulation accumulation = Accumulation::kDeterministic;
};

/// Threads, instruction set and accumulation mode of the calls made with it. Contexts are independent: two may run at
/// the same time. A context may be used by any number of callers at once; each call borrows an executor and a workspace
/// from its pool, which grows to the number of concurrent calls. Threads start with the first parallel call.
class FA_API Context {
 public:
  /// @return kInvalidArgument (threads or FA_NUM_THREADS out of range), kUnsupported (this CPU lacks options.isa, or
  /// FA_FORCE_ISA names none)
  static Result<std::unique_ptr<Context>> Create(const ContextOptions& options = {});
  /// A context for plans of another machine: kernels, tiles, order and load that it would have. What is planned with it
  /// does not run, and calls with it return kUnsupported.
  /// @return kInvalidArgument (a number out of range)
  static Result<std::unique_ptr<Context>> ForPlanning(const MachineOptions& machine);
  /// The process-wide context that calls without one use; made on first use (throws std::bad_alloc without memory for
  /// it; such calls return kOutOfMemory). If FA_NUM_THREADS or FA_FORCE_ISA cannot be honoured, the calls that use it
  /// return that error.
  static Context& Default();

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] int threads() const;
  [[nodiscard]] Isa isa() const;
  [[nodiscard]] Accumulation accumulation() const;
  [[nodiscard]] NumaPolicy numa() const;
  /// Why a level above isa() is not used although it was chosen: its kernels computed something wrong when they were
  /// tried on this CPU (docs/kernels.md). Empty where there is nothing to say.
  [[nodiscard]] const std::string& isa_note() const;
  /// Text about machine, instruction set, caches, NUMA nodes and threads.
  [[nodiscard]] std::string Describe() const;

  class Impl;

 private:
  friend struct core::ContextAccess;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Runs calls on the threads of the program's OpenMP runtime instead of the library's own, from now on and in all
/// contexts. OpenMP's threads spin for some milliseconds after a parallel region (`OMP_WAIT_POLICY`), and the library's
/// threads then find no core; a program whose other operators use OpenMP, as PyTorch's do, shares its threads. The bits
/// of results stay the same. `fa.torch` calls this with PyTorch's runtime (docs/threads.md).
///
/// One thread of the program has them, the first that calls, until it ends. The library's own threads run all other
/// calls: of another number of threads than OpenMP's, on several NUMA nodes, inside a parallel region, of a forked
/// child, and for a while after OpenMP's threads came late because other processes have the cores.
/// @param runtime  the runtime's shared library, which the process must have loaded, by its soname or path:
///                 "libgomp.so.1". Empty: the library's own threads again
/// @return false, and nothing changes, if the process has not loaded that library, or was forked without exec;
/// kInvalidArgument if it has no function GOMP_parallel (GNU's, LLVM's and Intel's runtimes have it)
[[nodiscard]] FA_API Result<bool> ShareOpenMpThreads(std::string_view runtime);

}  // namespace fa

#endif  // FA_CONTEXT_H_
