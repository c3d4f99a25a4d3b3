// Included once by each source of the draw, inside an anonymous namespace. Works on groups: their random numbers and
// logarithms are loops without branches, which the compiler vectorizes, and a group that cannot hold the winner is
// passed over.
constexpr uint32_t kGroup = 32, kCounters = kGroup / 4;
constexpr float kOut = -__builtin_inff();
constexpr float kMaxNoise = 22.5F;  // -log(q) <= -log(2^-32) = 22.18

// -log(q) of the word.
[[gnu::always_inline]] inline float noise_of(uint32_t word) {
  const float u = (static_cast<float>(static_cast<int32_t>(word >> 1)) + 0.5F) * 0x1p-31F;
  const float v = u < 1.0F ? 1.0F - u : 0x1p-25F;
  const sdk::cpu::Binary b = sdk::cpu::split_binary(v);
  // v near 1 has lost the low bits of u, which decide among likely candidates.
  const float d = b.exponent == 0.0F ? -u : b.rest;
  const float q = -(b.exponent * 0x1.62e43p-1F + sdk::cpu::log_near_one(d));
  return -sdk::cpu::log(q);
}

inline void noise_of_run(const DrawInput& in, uint32_t first, float* noise) {
  uint32_t words[kGroup];
  for (uint32_t c = 0; c < kCounters; ++c) {
    const sdk::cpu::PhiloxWords w = sdk::cpu::philox4x32({{in.position, 0, first / 4 + c, 0}}, in.key[0], in.key[1]);
    words[4 * c] = w.word[0], words[4 * c + 1] = w.word[1], words[4 * c + 2] = w.word[2], words[4 * c + 3] = w.word[3];
  }
  for (uint32_t i = 0; i < kGroup; ++i) noise[i] = noise_of(words[i]);
}

inline void noise_of_ids(const DrawInput& in, const int32_t* id, float* noise) {
  uint32_t words[kGroup];
  for (uint32_t i = 0; i < kGroup; ++i) {
    const auto token = static_cast<uint32_t>(id[i]);
    const sdk::cpu::PhiloxWords w = sdk::cpu::philox4x32({{in.position, 0, token / 4, 0}}, in.key[0], in.key[1]);
    const uint32_t low = (token & 1) != 0 ? w.word[1] : w.word[0], high = (token & 1) != 0 ? w.word[3] : w.word[2];
    words[i] = (token & 2) != 0 ? high : low;
  }
  for (uint32_t i = 0; i < kGroup; ++i) noise[i] = noise_of(words[i]);
}

// NaN counts as out.
inline float greatest(const float* x) {
  float m = kOut;
  for (uint32_t i = 0; i < kGroup; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

inline void draw_group(const DrawInput& in, uint32_t begin, const float* logit, const int32_t* id, Draw& best) {
  const float most = greatest(logit);
  if (!(most > kOut) || most + kMaxNoise < best.score) return;
  float score[kGroup];
  if (id == nullptr) {
    noise_of_run(in, in.first + begin, score);
  } else {
    noise_of_ids(in, id, score);
  }
  for (uint32_t i = 0; i < kGroup; ++i) score[i] = logit[i] > kOut ? logit[i] + score[i] : kOut;
  if (greatest(score) < best.score) return;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const int32_t token = id == nullptr ? static_cast<int32_t>(in.first + begin + i) : id[i];
    const bool lower = score[i] == best.score && static_cast<uint32_t>(token) < static_cast<uint32_t>(best.id);
    if (logit[i] > kOut && (score[i] > best.score || lower)) best = {score[i], token};
  }
}

inline Draw draw(const DrawInput& in) {
  Draw best = {kOut, -1};
  const uint32_t whole = in.n - in.n % kGroup;
  for (uint32_t begin = 0; begin < whole; begin += kGroup) {
    draw_group(in, begin, in.logit + begin, in.id == nullptr ? nullptr : in.id + begin, best);
  }
  if (whole < in.n) {
    float logit[kGroup];
    int32_t id[kGroup];
    for (uint32_t i = 0; i < kGroup; ++i) {
      const bool there = whole + i < in.n;
      logit[i] = there ? in.logit[whole + i] : kOut;
      id[i] = there && in.id != nullptr ? in.id[whole + i] : 0;
    }
    draw_group(in, whole, logit, in.id == nullptr ? nullptr : id, best);
  }
  return best;
}
