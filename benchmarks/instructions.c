/* Preloaded into what `instructions.py` runs under callgrind: starts and ends the counting, and takes the chance out. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

void start_counting(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

void end_counting(const char *row) {
  CALLGRIND_DUMP_STATS_AT(row);
  CALLGRIND_STOP_INSTRUMENTATION;
}

static uint64_t state;

/* SplitMix64 in place of the system's random bytes, so that hashes and keys are the same in every run. */
ssize_t getrandom(void *buffer, size_t length, unsigned int flags) {
  (void)flags;
  for (size_t at = 0; at < length; at++) {
    uint64_t z = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    ((unsigned char *)buffer)[at] = (unsigned char)(z >> 56);
  }
  return (ssize_t)length;
}

int getentropy(void *buffer, size_t length) {
  getrandom(buffer, length, 0);
  return 0;
}

/* Criterion says "Success" after each benchmark that it ran as a test: there the counts of one end. */
ssize_t write(int file, const void *text, size_t length) {
  long written = syscall(SYS_write, file, text, length);
  if (file == STDOUT_FILENO && length >= 7 && memcmp(text, "Success", 7) == 0) CALLGRIND_DUMP_STATS;
  return written;
}
