#!/bin/sh
# Checks which headers each source includes.
#
# A source may include headers of its own layer and of the layers below. From the lowest to the highest, the layers are
# core, layout, tiling, ops and ranks. The other interfaces (aclnn, mpi, torch, Python) and the tools include only public
# headers. Planning code includes nothing about threads, kernels or the operating system. Below, "a <- b" means that
# folder b may include headers of folder a, but not the reverse.
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
# forbid_of LAYER FOLDERS: no file directly in the folder of the layer includes a header of these subfolders.
forbid_of() {
  for file in src/"$1"/*.h src/"$1"/*.cc; do forbid_in "$file" "$1/$2/"; done
}
forbid core 'layout/|tiling/|ops/|ranks/|fa/plan'
# In core: kernels <- machine <- run <- context. Files directly in core include no header of these folders. In tiling,
# the folders forward, backward and sparse do not include each other.
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
# In ops: plan <- bind <- tile <- dense, token; bind <- cache; dense <- inference; token <- sparse, indexer.
forbid ops/plan 'ops/(bind|cache|tile|dense|token|inference|sparse|indexer)/'
forbid ops/bind 'ops/(cache|tile|dense|token|inference|sparse|indexer)/'
forbid ops/cache 'ops/(tile|dense|token|inference|sparse|indexer)/'
forbid ops/tile 'ops/(cache|dense|token|inference|sparse|indexer)/'
forbid ops/dense 'ops/(cache|token|inference|sparse|indexer)/'
forbid ops/token 'ops/(dense|inference|sparse|indexer)/'
forbid ops/inference 'ops/(token|sparse|indexer)/'
forbid ops/sparse 'ops/(dense|inference|indexer)/'
forbid ops/indexer 'ops/(dense|inference|sparse)/'
# No operator includes a header of the self-check.
for folder in plan bind cache tile dense token inference sparse indexer; do
  forbid "ops/$folder" 'ops/self_check/'
done
# In ranks: plan <- rows <- call <- run. Ranks run the dense operators only.
forbid ranks 'ops/(cache|token|inference|sparse|indexer|self_check)/|tiling/sparse/|tbb/|oneapi/|hwloc|cblas'
forbid ranks/plan 'ops/|core/kernels/|core/run/|thread|mutex|atomic|ranks/(rows|call|run)/'
forbid ranks/rows 'ranks/(call|run)/'
forbid ranks/call 'ranks/run/'
# No file in the layers below ranks mentions ranks.
if grep -rnE '[Rr]anks|[Rr]anked|[Tt]ravel|[Tt]ransport|[Ss]hard' src/core src/layout src/tiling src/ops; then
  echo "these floors know nothing of ranks"
  failed=1
fi
# Public headers include no internal ones.
forbid_in include '(core|layout|tiling|ops|ranks)/'
# In aclnn: runtime <- operations.
forbid aclnn/runtime 'aclnn/operations/'
# The other interfaces, the tools and the examples include only public headers.
for face in src/aclnn src/mpi src/torch python/binding python/binding_jax tools/fa tools/fa_mpi tools/check tools/npy examples; do
  forbid_in "$face" 'core/|layout/|tiling/|ops/|ranks/'
done
# In the command line tool: flags <- files <- cases <- commands <- bench <- doctor, pages.
forbid_in tools/fa/flags '(files|cases|commands|bench|doctor|pages)/'
forbid_in tools/fa/files '(cases|commands|bench|doctor|pages)/'
forbid_in tools/fa/cases '(commands|bench|doctor|pages)/'
forbid_in tools/fa/commands '(bench|doctor|pages)/'
forbid_in tools/fa/commands/run 'commands/plan/'
forbid_in tools/fa/commands/plan 'commands/run/'
forbid_in tools/fa/bench '(doctor|pages)/'
forbid_in tools/fa/doctor 'pages/'
exit "$failed"
