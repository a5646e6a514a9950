#!/bin/sh
# Includes point down: faces -> include/fa; ranks -> ops -> tiling -> layout -> core, and within a floor from folder to
# folder.
# Planning knows neither threads, kernels nor the operating system.
set -eu
cd "$(dirname "$0")/.."

failed=0
# forbid_in FOLDER PATTERN: no file under FOLDER includes a header whose path matches PATTERN.
forbid_in() {
  if grep -rnE --include='*.h' --include='*.cc' --include='*.inc' "^ *#include [<\"]($2)" "$1"; then
    echo "$1 must not include these"
    failed=1
  fi
}
forbid() { forbid_in "src/$1" "$2"; }
# forbid_of FLOOR FOLDERS: no file that lies in the floor's folder itself includes a header of its folders.
forbid_of() {
  for file in src/"$1"/*.h src/"$1"/*.cc; do forbid_in "$file" "$1/$2/"; done
}
forbid core 'layout/|tiling/|ops/|ranks/|fa/plan'
# The folders of core: kernels <- machine <- run <- context, all above the files of core itself. The folders of tiling:
# forward, backward and sparse, each alone above the files of tiling itself.
forbid core/kernels 'core/(machine|run|context)/'
forbid core/machine 'core/(run|context)/'
forbid core/run 'core/context/'
forbid_of core '(kernels|machine|run|context)'
forbid_of tiling '(forward|backward|sparse)'
forbid tiling/forward 'tiling/(backward|sparse)/'
forbid tiling/backward 'tiling/(forward|sparse)/'
forbid tiling/sparse 'tiling/(forward|backward)/'
forbid layout 'tiling/|ops/|ranks/'
forbid tiling 'ops/|ranks/|core/kernels/|core/run/|tbb/|oneapi/|hwloc|thread|mutex|atomic'
forbid ops 'ranks/|tbb/|oneapi/|hwloc|cblas'
# The folders of ops: plan <- bind <- tile <- dense, token; bind <- cache; dense <- inference; token <- sparse, indexer.
forbid ops/plan 'ops/(bind|cache|tile|dense|token|inference|sparse|indexer)/'
forbid ops/bind 'ops/(cache|tile|dense|token|inference|sparse|indexer)/'
forbid ops/cache 'ops/(tile|dense|token|inference|sparse|indexer)/'
forbid ops/tile 'ops/(cache|dense|token|inference|sparse|indexer)/'
forbid ops/dense 'ops/(cache|token|inference|sparse|indexer)/'
forbid ops/token 'ops/(dense|inference|sparse|indexer)/'
forbid ops/inference 'ops/(token|sparse|indexer)/'
forbid ops/sparse 'ops/(dense|inference|indexer)/'
forbid ops/indexer 'ops/(dense|inference|sparse)/'
# The self-check is above all operators.
for folder in plan bind cache tile dense token inference sparse indexer; do
  forbid "ops/$folder" 'ops/self_check/'
done
# The folders of ranks: plan <- rows <- call <- run. Ranks run the dense operators only.
forbid ranks 'ops/(cache|token|inference|sparse|indexer|self_check)/|tiling/sparse/|tbb/|oneapi/|hwloc|cblas'
forbid ranks/plan 'ops/|core/kernels/|core/run/|thread|mutex|atomic|ranks/(rows|call|run)/'
forbid ranks/rows 'ranks/(call|run)/'
forbid ranks/call 'ranks/run/'
# No file below ranks speaks of them.
if grep -rnE '[Rr]anks|[Rr]anked|[Tt]ravel|[Tt]ransport|[Ss]hard' src/core src/layout src/tiling src/ops; then
  echo "these floors know nothing of ranks"
  failed=1
fi
# Public headers include no internal ones.
forbid_in include '(core|layout|tiling|ops|ranks)/'
# The folders of aclnn: runtime <- operations.
forbid aclnn/runtime 'aclnn/operations/'
# The faces, the tools and the examples include only public headers.
for face in src/aclnn src/mpi python/binding python/binding_jax tools/fa tools/fa_mpi tools/check tools/npy examples; do
  forbid_in "$face" 'core/|layout/|tiling/|ops/|ranks/'
done
# The folders of the command line tool: flags <- files <- cases <- commands <- bench <- doctor,
# pages.
forbid_in tools/fa/flags '(files|cases|commands|bench|doctor|pages)/'
forbid_in tools/fa/files '(cases|commands|bench|doctor|pages)/'
forbid_in tools/fa/cases '(commands|bench|doctor|pages)/'
forbid_in tools/fa/commands '(bench|doctor|pages)/'
forbid_in tools/fa/commands/run 'commands/plan/'
forbid_in tools/fa/commands/plan 'commands/run/'
forbid_in tools/fa/bench '(doctor|pages)/'
forbid_in tools/fa/doctor 'pages/'
exit "$failed"
