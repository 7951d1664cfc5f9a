// SPDX-License-Identifier: Apache-2.0
// Loaded before a program (LD_PRELOAD): the wall clock jumps, by CLOCK_JUMP seconds ahead and back again, with each
// look at it. The monotonic clock goes on as ever.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static atomic_long looks;

static time_t jump(void) {
  const char* const seconds = getenv("CLOCK_JUMP");
  return seconds != NULL && atomic_fetch_add(&looks, 1) % 2 == 0 ? (time_t)atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return failed;
}
int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec time;
  if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
