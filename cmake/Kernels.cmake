# Kernels: each file of runtime/kernel/cpu is compiled for its own instruction set and chosen at run time.
quire_room(kernel runtime/kernel DEPS base NO_PCH)
