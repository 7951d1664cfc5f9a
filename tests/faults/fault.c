// SPDX-License-Identifier: Apache-2.0
// Loaded before a program (LD_PRELOAD): one call of it to the system fails, as on a bad day.
//   FAULT="KIND K ERRNO"   the K-th call of that kind fails: write, fsync, rename, open or malloc. "K+": each from
//   there on.
//                          0: none fails.
//   FAULT_IN=ROLE          of which process: program (the first one, as usual), child, --worker or --runner.
//   FAULT_COUNTS=FILE      of five long integers: how many calls of each kind that process made.
// Writes to standard error and to pipes are not counted: a message has no other place, and pipes are never full.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind { kWrite, kFsync, kRename, kOpen, kMalloc, kKinds };
static const char* const kNames[kKinds] = {"write", "fsync", "rename", "open", "malloc"};

static atomic_bool here;  // whether this is the process that it is about
static atomic_long own_calls[kKinds];
static atomic_long* calls = own_calls;
static int failing = kKinds, reason;
static long first, last;

// Glibc's own, since looking them up takes memory.
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static int fails(enum kind kind) {
  if (!here) return 0;
  const long k = atomic_fetch_add(&calls[kind], 1) + 1;
  if ((int)kind != failing || k < first || k > last) return 0;
  errno = reason;
  return 1;
}

/// The second word of this process's command line, as far as it fits.
static void role_of_this(char* role, size_t size) {
  char line[4096];
  const int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY);
  const ssize_t got = file < 0 ? 0 : syscall(SYS_read, file, line, sizeof line - 1);
  if (file >= 0) syscall(SYS_close, file);
  line[got > 0 ? got : 0] = '\0';
  const size_t word = strlen(line) + 1;
  const char* const second = (ssize_t)word < got ? line + word : "";
  const char* const name = strcmp(second, "--worker") == 0 || strcmp(second, "--runner") == 0 ? second
                           : getenv("AMPCHECK_CHILD") != NULL                                 ? "child"
                                                                                              : "program";
  snprintf(role, size, "%s", name);
}

/// In a file that is there, so that counts stay however the process ends.
static void count_in(const char* path) {
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR);
  void* const there = mmap(NULL, sizeof own_calls, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  syscall(SYS_close, file);
  if (there != MAP_FAILED) calls = there;
}

__attribute__((constructor)) static void begin(void) {
  const char *const fault = getenv("FAULT"), *const in = getenv("FAULT_IN"), *const file = getenv("FAULT_COUNTS");
  const char* const wanted = in != NULL ? in : "program";
  char role[32], kind[16] = "", more = ' ';
  role_of_this(role, sizeof role);
  if (strcmp(role, wanted) != 0) return;
  if (file != NULL) count_in(file);
  if (fault != NULL && sscanf(fault, "%15s %ld%c %d", kind, &first, &more, &reason) == 4)
    for (int k = 0; k < kKinds; ++k)
      if (first > 0 && strcmp(kind, kNames[k]) == 0) failing = k;
  last = more == '+' ? __LONG_MAX__ : first;
  unsetenv("LD_PRELOAD");  // the processes that it starts are others
  here = 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_pipe(int file) {
  struct stat facts;
  return fstat(file, &facts) == 0 && S_ISFIFO(facts.st_mode);
}
ssize_t write(int file, const void* data, size_t size) {
  return file != STDERR_FILENO && !is_pipe(file) && fails(kWrite) ? -1 : syscall(SYS_write, file, data, size);
}
int fsync(int file) { return fails(kFsync) ? -1 : (int)syscall(SYS_fsync, file); }
int rename(const char* from, const char* to) {
  return fails(kRename) ? -1 : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

#define OPEN(name, flags_more)                                                                       \
  int name(const char* path, int flags, ...) {                                                       \
    va_list rest;                                                                                    \
    va_start(rest, flags);                                                                           \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;           \
    va_end(rest);                                                                                    \
    return fails(kOpen) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags | (flags_more), mode); \
  }
OPEN(open, 0)
OPEN(open64, 0)

FILE* fopen(const char* path, const char* mode) { return fails(kOpen) ? NULL : NEXT(fopen)(path, mode); }
FILE* fopen64(const char* path, const char* mode) { return fails(kOpen) ? NULL : NEXT(fopen64)(path, mode); }

void* malloc(size_t size) { return fails(kMalloc) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails(kMalloc) ? NULL : __libc_calloc(count, size); }
void* realloc(void* from, size_t size) { return fails(kMalloc) ? NULL : __libc_realloc(from, size); }
void* aligned_alloc(size_t alignment, size_t size) { return fails(kMalloc) ? NULL : __libc_memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  if (fails(kMalloc)) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out == NULL ? ENOMEM : 0;
}
