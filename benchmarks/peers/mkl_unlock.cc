// MKL takes its fast kernels only if this function says that the CPU is Intel's. Preloaded, it says so for every CPU;
// MKL then chooses among the kernels by AVX2 and AVX-512. Results differ by rounding alone.
extern "C" int mkl_serv_intel_cpu_true() { return 1; }
