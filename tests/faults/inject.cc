// This library for LD_PRELOAD makes the n-th call of one kind fail, as it would on a machine that has run out of
// something. It counts from the beginning of main(), so that the loader's own work is left alone.
//
// Read from the environment:
//   TENON_INJECT=KIND:N    the N-th call (from 1) of the kind fails, once; KIND:N+ makes every later one fail as well
//   TENON_INJECT_REPORT=F  writes to F: "fired FUNCTION" when a call has been made to fail, and at the process's end
//                          "KIND COUNT" for each kind
//   TENON_INJECT_STACKS=1  adds to F the stack of the call that failed
//   TENON_INJECT_MEMINFO=F is what fopen() opens in place of /proc/meminfo
//   TENON_INJECT_CALLERS=K   at the end adds "callers N N ...": the first call of kind K from each distinct stack
// Without TENON_INJECT it only counts.
//
// What fails, and with which error:
//   alloc   malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign, operator new    ENOMEM
//   open    open, openat, fopen, opendir, pipe, dlopen                                        EMFILE
//   map     mmap                                                                              ENOMEM
//   read    read, pread, fread, getc, fgets                                                   EIO
//   write   write, pwrite, writev, pwritev, fwrite, fputs, fputc, fflush, fallocate,          ENOSPC
//           ftruncate, rename, linkat, and of what was open for writing fclose, close, fsync  EIO
//   thread  pthread_create                                                                    EAGAIN
// Writes to standard error never fail: that is where the message must go. Calls inside libc and the loader do not come
// by here; fopen(), fread() and the like are therefore counted as whole calls.
//
// Nothing here allocates, since it runs inside malloc(): counters are static, the report is written by system calls.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

enum Kind { kAlloc, kOpen, kMap, kRead, kWrite, kThread, kKinds };
constexpr const char* kNames[kKinds] = {"alloc", "open", "map", "read", "write", "thread"};

bool armed = false;  // it is set from main() on
int failing = -1;    // it is the kind, or none
uint64_t failing_at = 0;
bool failing_on = false;
bool with_stacks = false;
int callers_of = -1;
std::atomic<uint64_t> counts[kKinds];
int report = -1;
const char* meminfo = nullptr;

// These are stacks that were seen, as hashes in an open-addressing table, and the calls that came from them first.
constexpr size_t kMostCallers = size_t{1} << 16;
std::atomic<uint64_t> seen[kMostCallers];
uint32_t first_calls[kMostCallers];
std::atomic<uint32_t> callers = 0;
constexpr int kDepth = 24;

thread_local int passing __attribute__((tls_model("initial-exec"))) = 0;

void say(const char* text, size_t length) {
  if (report >= 0) syscall(SYS_write, report, text, length);
}
void say(const char* text) {
  say(text, std::strlen(text));
}
void say_number(uint64_t value) {
  char digits[24];
  size_t at = sizeof(digits);
  do digits[--at] = static_cast<char>('0' + value % 10);
  while ((value /= 10) > 0);
  say(digits + at, sizeof(digits) - at);
}

void note_caller(uint64_t call) {
  void* stack[kDepth];
  passing = 1;
  const int depth = backtrace(stack, kDepth);
  passing = 0;
  uint64_t hash = 1469598103934665603U;
  for (int i = 2; i < depth; ++i) hash = (hash ^ reinterpret_cast<uint64_t>(stack[i])) * 1099511628211U;
  hash |= 1;
  for (size_t slot = hash >> 20;; ++slot) {
    uint64_t there = 0;
    if (seen[slot % kMostCallers].compare_exchange_strong(there, hash)) break;
    if (there == hash) return;
  }
  const uint32_t caller = callers.fetch_add(1);
  if (caller >= kMostCallers / 2) _exit(99);
  first_calls[caller] = static_cast<uint32_t>(call);
}

// Says whether this call is to fail.
bool fails(Kind kind, const char* function) {
  if (!armed || passing != 0) return false;
  const uint64_t call = counts[kind].fetch_add(1, std::memory_order_relaxed) + 1;
  if (callers_of == kind) note_caller(call);
  if (failing != kind || call < failing_at || (call > failing_at && !failing_on)) return false;
  if (call == failing_at) {
    say("fired ");
    say(function);
    say("\n");
    if (with_stacks && report >= 0) {
      void* stack[64];
      passing = 1;
      backtrace_symbols_fd(stack, backtrace(stack, 64), report);
      passing = 0;
    }
  }
  return true;
}

template <class T>
T fail(int error, T result) {
  errno = error;
  return result;
}
// This does the same of a stream, which from then on says by ferror() that it has failed.
template <class T>
T fail(FILE* file, int error, T result) {
  constexpr int kErrorSeen = 0x20;  // it is glibc's _IO_ERR_SEEN; nothing public sets it
  file->_flags |= kErrorSeen;
  return fail(error, result);
}

bool for_writing(int file) {
  if (file == STDERR_FILENO) return false;
  const int flags = fcntl(file, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

int kind_of(const char* name, size_t length) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (std::strlen(kNames[kind]) == length && std::strncmp(kNames[kind], name, length) == 0) return kind;
  }
  return -1;
}

void read_environment() {
  if (const char* path = std::getenv("TENON_INJECT_REPORT")) {
    report = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  }
  meminfo = std::getenv("TENON_INJECT_MEMINFO");
  with_stacks = std::getenv("TENON_INJECT_STACKS") != nullptr;
  if (const char* kind = std::getenv("TENON_INJECT_CALLERS")) callers_of = kind_of(kind, std::strlen(kind));
  if (const char* what = std::getenv("TENON_INJECT")) {
    const char* colon = std::strchr(what, ':');
    if (colon == nullptr) return;
    char* end = nullptr;
    failing = kind_of(what, static_cast<size_t>(colon - what));
    failing_at = std::strtoull(colon + 1, &end, 10);
    failing_on = *end == '+';
  }
  void* stack[1];
  backtrace(stack, 1);  // loads what it needs, now that nothing fails yet
}

// Returns the function that this library stands before: the next one in the order of the loader.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// They are looked up once, before main(): a look-up forgets what dlerror() would have said.
struct Real {
#define TENON_REAL(name) decltype(&::name) name = next<decltype(::name)>(#name);
  TENON_REAL(aligned_alloc)
  TENON_REAL(calloc)
  TENON_REAL(close)
  TENON_REAL(dlopen)
  TENON_REAL(fallocate)
  TENON_REAL(fclose)
  TENON_REAL(fflush)
  TENON_REAL(fgets)
  TENON_REAL(fopen)
  TENON_REAL(fputc)
  TENON_REAL(fputs)
  TENON_REAL(fread)
  TENON_REAL(fsync)
  TENON_REAL(ftruncate)
  TENON_REAL(fwrite)
  TENON_REAL(getc)
  TENON_REAL(linkat)
  TENON_REAL(malloc)
  TENON_REAL(mmap)
  TENON_REAL(open)
  TENON_REAL(openat)
  TENON_REAL(opendir)
  TENON_REAL(pipe)
  TENON_REAL(pipe2)
  TENON_REAL(posix_memalign)
  TENON_REAL(pread)
  TENON_REAL(pthread_create)
  TENON_REAL(pthread_getattr_np)
  TENON_REAL(putc)
  TENON_REAL(puts)
  TENON_REAL(pwrite)
  TENON_REAL(read)
  TENON_REAL(realloc)
  TENON_REAL(rename)
  TENON_REAL(renameat2)
  TENON_REAL(write)
  TENON_REAL(writev)
#undef TENON_REAL
  void* (*memalign)(size_t, size_t) = next<void*(size_t, size_t)>("memalign");
  void* (*operator_new)(size_t) = next<void*(size_t)>("_Znwm");
  void* (*operator_new_array)(size_t) = next<void*(size_t)>("_Znam");
};
const Real& real() {
  static const Real found;
  return found;
}

}  // namespace

extern "C" {

// Under the address sanitizer the allocator before which this one stands is the sanitizer's.
void __asan_init() __attribute__((weak));
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  if (fails(kAlloc, "malloc")) return fail<void*>(ENOMEM, nullptr);
  if (&__asan_init == nullptr) return __libc_malloc(bytes);
  return real().malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  if (fails(kAlloc, "calloc")) return fail<void*>(ENOMEM, nullptr);
  if (&__asan_init == nullptr) return __libc_calloc(count, bytes);
  return real().calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  if (fails(kAlloc, "realloc")) return fail<void*>(ENOMEM, nullptr);
  if (&__asan_init == nullptr) return __libc_realloc(old, bytes);
  return real().realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  if (fails(kAlloc, "memalign")) return fail<void*>(ENOMEM, nullptr);
  if (&__asan_init == nullptr) return __libc_memalign(alignment, bytes);
  return real().memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  if (fails(kAlloc, "aligned_alloc")) return fail<void*>(ENOMEM, nullptr);
  if (&__asan_init == nullptr) return __libc_memalign(alignment, bytes);
  return real().aligned_alloc(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (fails(kAlloc, "posix_memalign")) return ENOMEM;
  if (&__asan_init == nullptr) return (*out = __libc_memalign(alignment, bytes)) == nullptr ? ENOMEM : 0;
  return real().posix_memalign(out, alignment, bytes);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (fails(kOpen, "open")) return fail(EMFILE, -1);
  return real().open(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (fails(kOpen, "openat")) return fail(EMFILE, -1);
  return real().openat(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  if (fails(kOpen, "fopen")) return fail<FILE*>(EMFILE, nullptr);
  return real().fopen(meminfo != nullptr && std::strcmp(path, "/proc/meminfo") == 0 ? meminfo : path, mode);
}
DIR* opendir(const char* path) {
  if (fails(kOpen, "opendir")) return fail<DIR*>(EMFILE, nullptr);
  return real().opendir(path);
}
int pipe(int ends[2]) noexcept {
  if (fails(kOpen, "pipe")) return fail(EMFILE, -1);
  return real().pipe(ends);
}
int pipe2(int ends[2], int flags) noexcept {
  if (fails(kOpen, "pipe2")) return fail(EMFILE, -1);
  return real().pipe2(ends, flags);
}
// The loader opens by system calls of its own; dlerror() must say something.
void* dlopen(const char* path, int flags) {
  if (path != nullptr && fails(kOpen, "dlopen")) {
    return real().dlopen("/proc/self/injected fault: Too many open files", RTLD_NOW);
  }
  return real().dlopen(path, flags);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (fails(kMap, "mmap")) return fail(ENOMEM, MAP_FAILED);
  return real().mmap(address, bytes, protection, flags, file, offset);
}

ssize_t read(int file, void* out, size_t bytes) {
  if (fails(kRead, "read")) return fail<ssize_t>(EIO, -1);
  return real().read(file, out, bytes);
}
ssize_t pread(int file, void* out, size_t bytes, off_t offset) {
  if (fails(kRead, "pread")) return fail<ssize_t>(EIO, -1);
  return real().pread(file, out, bytes, offset);
}
size_t fread(void* out, size_t size, size_t count, FILE* file) {
  if (fails(kRead, "fread")) return fail(file, EIO, size_t{0});
  return real().fread(out, size, count, file);
}
int getc(FILE* file) {
  if (fails(kRead, "getc")) return fail(file, EIO, EOF);
  return real().getc(file);
}
char* fgets(char* out, int bytes, FILE* file) {
  if (fails(kRead, "fgets")) return fail<char*>(file, EIO, nullptr);
  return real().fgets(out, bytes, file);
}

ssize_t write(int file, const void* bytes, size_t count) {
  if (file != STDERR_FILENO && fails(kWrite, "write")) return fail<ssize_t>(ENOSPC, -1);
  return real().write(file, bytes, count);
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  if (fails(kWrite, "pwrite")) return fail<ssize_t>(ENOSPC, -1);
  return real().pwrite(file, bytes, count, offset);
}
ssize_t writev(int file, const iovec* parts, int count) {
  if (file != STDERR_FILENO && fails(kWrite, "writev")) return fail<ssize_t>(ENOSPC, -1);
  return real().writev(file, parts, count);
}
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  if (file != stderr && fails(kWrite, "fwrite")) return fail(file, ENOSPC, size_t{0});
  return real().fwrite(bytes, size, count, file);
}
int fputs(const char* text, FILE* file) {
  if (file != stderr && fails(kWrite, "fputs")) return fail(file, ENOSPC, EOF);
  return real().fputs(text, file);
}
int fputc(int byte, FILE* file) {
  if (file != stderr && fails(kWrite, "fputc")) return fail(file, ENOSPC, EOF);
  return real().fputc(byte, file);
}
int putc(int byte, FILE* file) {
  if (file != stderr && fails(kWrite, "putc")) return fail(file, ENOSPC, EOF);
  return real().putc(byte, file);
}
int puts(const char* text) {
  if (fails(kWrite, "puts")) return fail(stdout, ENOSPC, EOF);
  return real().puts(text);
}
int printf(const char* format, ...) {
  if (fails(kWrite, "printf")) return fail(stdout, ENOSPC, -1);
  va_list values;
  va_start(values, format);
  const int written = vprintf(format, values);
  va_end(values);
  return written;
}
int fflush(FILE* file) {
  if (file != stderr && fails(kWrite, "fflush")) return fail(file, ENOSPC, EOF);
  return real().fflush(file);
}
int fclose(FILE* file) {
  const bool failed = file != stderr && for_writing(fileno(file)) && fails(kWrite, "fclose");
  const int result = real().fclose(file);
  return failed ? fail(EIO, EOF) : result;
}
int close(int file) {
  const bool failed = for_writing(file) && fails(kWrite, "close");
  const int result = real().close(file);
  return failed ? fail(EIO, -1) : result;
}
int fsync(int file) {
  if (fails(kWrite, "fsync")) return fail(EIO, -1);
  return real().fsync(file);
}
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  if (fails(kWrite, "fallocate")) return fail(ENOSPC, -1);
  return real().fallocate(file, mode, offset, bytes);
}
int ftruncate(int file, off_t bytes) noexcept {
  if (fails(kWrite, "ftruncate")) return fail(ENOSPC, -1);
  return real().ftruncate(file, bytes);
}
int rename(const char* from, const char* to) noexcept {
  if (fails(kWrite, "rename")) return fail(ENOSPC, -1);
  return real().rename(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (fails(kWrite, "renameat2")) return fail(ENOSPC, -1);
  return real().renameat2(from_folder, from, to_folder, to, flags);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  if (fails(kWrite, "linkat")) return fail(ENOSPC, -1);
  return real().linkat(from_folder, from, to_folder, to, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) noexcept {
  if (fails(kThread, "pthread_create")) return EAGAIN;
  return real().pthread_create(thread, attributes, work, argument);
}
// The sanitizer asks for the stack of each thread that begins, and ends the process where that fails.
int pthread_getattr_np(pthread_t thread, pthread_attr_t* attributes) noexcept {
  passing = 1;
  const int error = real().pthread_getattr_np(thread, attributes);
  passing = 0;
  return error;
}

// These are the same functions by the names that 64-bit offsets have in headers of other settings.
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));
FILE* fopen64(const char* path, const char* mode) __attribute__((alias("fopen")));
void* mmap64(void*, size_t, int, int, int, off_t) noexcept __attribute__((alias("mmap")));
ssize_t pread64(int, void*, size_t, off_t) __attribute__((alias("pread")));
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));
int fallocate64(int, int, off_t, off_t) __attribute__((alias("fallocate")));
int ftruncate64(int, off_t) noexcept __attribute__((alias("ftruncate")));

// Counting begins when main() does.
using Main = int(int, char**, char**);
static Main* real_main = nullptr;
static int counted_main(int argc, char** argv, char** environment) {
  read_environment();
  armed = true;
  return real_main(argc, argv, environment);
}
int __libc_start_main(Main* main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                      void* end) {
  real();
  real_main = main;
  return next<int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*)>("__libc_start_main")(
      counted_main, argc, argv, init, fini, rtld_fini, end);
}

}  // extern "C"

// The sanitizer's operator new does not come by malloc(), libstdc++'s does: without the sanitizer these only pass on.
static void count_new() {
  if (&__asan_init != nullptr && fails(kAlloc, "operator new")) throw std::bad_alloc();
}
void* operator new(size_t bytes) {
  count_new();
  return real().operator_new(bytes);
}
void* operator new[](size_t bytes) {
  count_new();
  return real().operator_new_array(bytes);
}

// This is written when everything else has ended: this library is loaded first.
__attribute__((destructor)) static void write_report() {
  if (!armed) return;
  armed = false;
  for (int kind = 0; kind < kKinds; ++kind) {
    say(kNames[kind]);
    say(" ");
    say_number(counts[kind]);
    say("\n");
  }
  if (callers_of < 0) return;
  say("callers");
  for (uint32_t i = 0; i < callers; ++i) {
    say(" ");
    say_number(first_calls[i]);
  }
  say("\n");
}
