# Kernels: each file of runtime/kernel/cpu is compiled for its own instruction set and chosen at run time. Elsewhere runtime/kernel/no_cpu
# takes that folder's place and the plain kernels serve.
quire_room(kernel runtime/kernel DEPS base EXCLUDE cpu NO_PCH)
