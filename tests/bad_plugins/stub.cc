extern "C" __attribute__((visibility("default"))) int tenon_stub_answer() {
  return 42;
}
