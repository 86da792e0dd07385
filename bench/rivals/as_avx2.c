/* Loaded before a program whose cpuid instructions were made traps (as_avx2.py): answers each as a processor with AVX2 would that has neither
   AVX-512 nor AVX-VNNI nor AMX. Bits: Intel's manual, volume 2A, CPUID, leaves 7 and 24H. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#define BIT(n) (1U << (n))

static void answer(int number, siginfo_t* info, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX];
  unsigned a, b, c, d;
  (void)number, (void)info;
  __cpuid_count(leaf, part, a, b, c, d);
  if (leaf == 7 && part == 0) {
    b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL */
    c &= ~(BIT(1) | BIT(6) | BIT(8) | BIT(9) | BIT(10) | BIT(11) | BIT(12) | BIT(14));     /* its VBMI, VNNI, ...; GFNI, VAES */
    d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));              /* more of it, FP16, AMX */
  } else if (leaf == 7 && part == 1) {
    a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI, AVX-512 BF16, AMX FP16, AVX-IFMA */
    d = 0;                                       /* AVX-VNNI-INT8, AMX, AVX10 */
  } else if (leaf == 0x24) {
    a = b = c = d = 0;
  }
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 1; /* the trap takes the first of cpuid's two bytes */
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGTRAP, &action, 0);
}
