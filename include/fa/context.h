#ifndef FA_CONTEXT_H_
#define FA_CONTEXT_H_

/// @file
/// The context of a call, with its threads, its instruction-set level and the order of its sums.
/// @code{.cpp}
/// const auto context = fa::Context::Create({.threads = 4});
/// if (!context.ok()) return context.status();
/// std::vector<float> q(8 * 128 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 128, 64});
/// args.out = fa::View(out.data(), {1, 8, 128, 64});
/// return fa::FlashAttention(args, {}, context->get());
/// @endcode

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
struct ContextAccess;  // lets code of the library read what a context holds
}

/// Instruction-set levels. Level `portable` runs on any CPU. The others form two families, one of x86-64 and one of
/// aarch64. In a family each level includes the ones before it.
enum class Isa : uint8_t {
  kPortable,
  kAvx2,         ///< x86-64: AVX2, FMA, F16C
  kAvx512,       ///< AVX-512 F, BW, DQ, VL
  kAvx512Vnni,   ///< adds int8 dot products
  kAvx512Bf16,   ///< adds bf16 dot products
  kAvx512Amx,    ///< adds the tile unit (AMX) for bf16 and int8
  kNeon,         ///< aarch64: Advanced SIMD, which every such CPU has
  kNeonDotprod,  ///< adds int8 dot products (SDOT)
  kNeonBf16,     ///< adds products of bf16 and of int8 blocks (BFMMLA, SMMLA)
};

/// Returns all levels of both families, in the order of the enumeration. A library that was built with its tests has
/// one more level, for the tests.
[[nodiscard]] FA_API std::span<const Isa> AllIsas();
/// Returns whether a CPU of `level` can run code that needs the level `part`.
[[nodiscard]] FA_API bool Includes(Isa level, Isa part);
/// Returns the name of a level: "portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx", "neon",
/// "neon_dotprod" or "neon_bf16".
[[nodiscard]] FA_API const char* Name(Isa isa);
/// Returns the names of all levels, for messages: "portable, avx2 ... or neon_bf16".
[[nodiscard]] FA_API std::string IsaNames();
/// Returns the level with that name, or nothing if no level has it.
[[nodiscard]] FA_API std::optional<Isa> ParseIsa(const std::string& name);
/// Returns the highest level of this CPU. If the CPU has the tile unit, the first call asks Linux to let the process
/// use it (arch_prctl). Without this permission the level is avx512_bf16. Some hypervisors hide features of the CPU.
/// There, the environment variable FA_ASSUME_ISA can name the level. If the CPU lacks that level, SIGILL ends the
/// process.
[[nodiscard]] FA_API Isa DetectIsa();
/// Returns whether a context of the level can be made here. The CPU must have the level, and the library must have been
/// built with it (CMake's FA_LEVELS, docs/packaging.md).
[[nodiscard]] FA_API bool CanRun(Isa isa);

/// How sums over blocks are ordered.
enum class Accumulation : uint8_t {
  kDeterministic,  ///< bits do not depend on the number of threads, on the run or on the call's other sequences
  kAtomicFree,     ///< sums may be reordered for speed; no operator does this
};

/// Whether the tasks of a head, and its packed keys and values, stay on one NUMA node.
enum class NumaPolicy : uint8_t {
  kSpread,  ///< the tasks of one head stay on one NUMA node, and all nodes get equal shares
  kIgnore,  ///< NUMA nodes are ignored
};

/// The choices with which a context is made. Every field has a default.
struct ContextOptions {
  /// The number of threads. 0 stands for the number in the environment variable FA_NUM_THREADS (1..65536). Without that
  /// variable the context has one thread per core of the process' affinity mask. The control groups of the process may
  /// limit the number further (docs/threads.md).
  int threads = 0;
  std::optional<Isa> isa = {};  ///< default: environment variable FA_FORCE_ISA, else the fastest level
  Accumulation accumulation = Accumulation::kDeterministic;
  NumaPolicy numa = NumaPolicy::kSpread;
  /// Whether OpenBLAS computes the products of the portable level. If it does, equal bits are not promised. Default:
  /// true if the environment variable FA_PORTABLE_BLAS is 1.
  std::optional<bool> portable_blas = {};
};

/// A machine for which plans are made. The machine may differ from this one.
struct MachineOptions {
  Isa isa = Isa::kPortable;
  int cores = 1;       ///< 1..65536, one thread per core
  int numa_nodes = 1;  ///< at most cores
  /// Cache sizes of one core. 0 stands for the smallest caches of server CPUs of the level. Their L1 and L2 have 32 KiB
  /// and 256 KiB (portable, avx2), 32 KiB and 1 MiB (avx512), or 64 KiB and 512 KiB (neon).
  int64_t l1_bytes = 0, l2_bytes = 0;
  Accumulation accumulation = Accumulation::kDeterministic;
};

/// Threads, instruction set and accumulation mode of the calls that use the context. Any number of callers may use one
/// context, or different contexts, at the same time. Threads start with the first parallel call.
class FA_API Context {
 public:
  /// Makes a context for this machine.
  /// @return kInvalidArgument if options.threads or FA_NUM_THREADS is out of range; kUnsupported if this CPU or
  /// this build lacks options.isa or the level that FA_FORCE_ISA names, or if CheckLevel finds that level wrong
  static Result<std::unique_ptr<Context>> Create(const ContextOptions& options = {});
  /// Makes a context for plans for another machine. Its plans have the kernels, tiles, order and load of that machine.
  /// Such plans do not run, and calls with this context return kUnsupported.
  /// @return kInvalidArgument if a number is out of range
  static Result<std::unique_ptr<Context>> ForPlanning(const MachineOptions& machine);
  /// Returns the process-wide context, which calls without a context use. The first use makes this context. If there is
  /// no memory for this context, Default throws std::bad_alloc, and calls without a context return kOutOfMemory. If
  /// FA_NUM_THREADS or FA_FORCE_ISA has a value that cannot be used, the calls that use this context return that error.
  static Context& Default();

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] int threads() const;
  [[nodiscard]] Isa isa() const;
  [[nodiscard]] Accumulation accumulation() const;
  [[nodiscard]] NumaPolicy numa() const;
  /// Returns why the context does not use a level above isa() that this CPU has: CheckLevel found that level wrong
  /// (docs/kernels.md). The text is empty if no level was found wrong.
  [[nodiscard]] const std::string& isa_note() const;
  /// Returns a text about the machine, its instruction set, caches and NUMA nodes, and the context's threads.
  [[nodiscard]] std::string Describe() const;

  class Impl;

 private:
  friend struct core::ContextAccess;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Computes small calls (attention and its gradients, decode, int8, the indexer) at `level` and at the level below it,
/// and compares their outputs. The calling thread takes some tens of milliseconds for that. The levels of aarch64 have
/// never run on an aarch64 CPU. So a process checks such a level before it first uses it.
/// @return kInternal if outputs differ ("neon's dk of f32 is not portable's on this CPU"); kUnsupported if this CPU or
/// this build lacks the level
[[nodiscard]] FA_API Status CheckLevel(Isa level);

/// Runs calls on the threads of the program's OpenMP runtime instead of the library's own, from now on and in all
/// contexts. OpenMP's threads spin for some milliseconds after a parallel region (`OMP_WAIT_POLICY`), so meanwhile the
/// library's own threads find no core. A program whose other operators use OpenMP, such as PyTorch's, should therefore
/// share its threads. The bits of results stay the same. `fa.torch` calls this function with PyTorch's runtime
/// (docs/threads.md).
///
/// Only one thread of the program runs its calls on OpenMP's threads: the first thread that makes a call. When that
/// thread ends, the next thread that makes a call takes its place. The library's own threads run all other calls:
/// - calls of other threads of the program;
/// - calls with another number of threads than OpenMP has, or on several NUMA nodes;
/// - calls inside a parallel region, and calls of a forked child;
/// - for a while, all calls, if OpenMP's threads came late because other processes had the cores.
/// @param runtime  soname or path of the runtime's shared library, which the process must have loaded: "libgomp.so.1".
///                 If it is empty, calls use the library's own threads again
/// @return false, and nothing changes, if the process has not loaded that library or is a forked child;
/// kInvalidArgument if the library has no function GOMP_parallel (the runtimes of GNU, LLVM and Intel have it)
[[nodiscard]] FA_API Result<bool> ShareOpenMpThreads(std::string_view runtime);

}  // namespace fa

#endif  // FA_CONTEXT_H_
