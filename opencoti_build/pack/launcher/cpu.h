/* What the engine needs of the CPU. */
#ifndef OPENCOTI_CPU_H
#define OPENCOTI_CPU_H

/* NULL when this CPU can run the engine, else what it lacks. The engine's own modules choose
   the faster code; this is only the least that all of them need (x86-64-v2). */
const char *cpu_lacks(void);

#endif
