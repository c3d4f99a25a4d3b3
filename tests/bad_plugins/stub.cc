// This is the library that is not there when missing_library is loaded.
extern "C" __attribute__((visibility("default"))) int tenon_stub_answer() {
  return 42;
}
