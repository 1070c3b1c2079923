#include "cpu.h"

#include <stddef.h>

#if defined(__x86_64__)
#include <cpuid.h>

const char *cpu_lacks(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return "CPUID";
    if (!(c & bit_SSSE3))
        return "SSSE3";
    if (!(c & bit_CMPXCHG16B))
        return "CMPXCHG16B";
    if (!(c & bit_SSE4_1))
        return "SSE4.1";
    if (!(c & bit_SSE4_2))
        return "SSE4.2";
    if (!(c & bit_POPCNT))
        return "POPCNT";
    return NULL;
}
#else
const char *cpu_lacks(void)
{
    return NULL;
}
#endif
