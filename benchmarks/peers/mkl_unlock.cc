// MKL chooses its fast kernels only if this function says that the CPU is Intel's. This version of the function says so
// for every CPU, if it is preloaded. MKL then chooses kernels by the CPU's AVX2 and AVX-512. Results differ only by
// rounding.
extern "C" int mkl_serv_intel_cpu_true() { return 1; }
