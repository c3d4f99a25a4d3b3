// Included once by each source of the draw, inside an anonymous namespace, after
//   kBytes                   bytes of a vector
//   U64 multiply(U64, U64)   the products of the lanes' low halves
//   U64 zip_low(U64 a, U64 b), zip_high    a0, b0, a1, b1, ... of the first and of the second half of the lanes
// Lanes do not meet before the end, and all arithmetic is additions, multiplications and divisions that are not fused,
// so the bits do not depend on the vectors' length.
typedef uint32_t U32 __attribute__((vector_size(kBytes)));
typedef int32_t I32 __attribute__((vector_size(kBytes)));
typedef float F32 __attribute__((vector_size(kBytes)));

constexpr uint32_t kLanes = kBytes / 4, kGroup = 2 * kLanes;
constexpr float kOut = -__builtin_inff();

template <class V, class T>
V load(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
template <class V>
V counting_from(uint32_t first) {
  V v{};
  for (uint32_t i = 0; i < sizeof(V) / sizeof(v[0]); ++i) v[i] = first + i;
  return v;
}

// Four words each; only the lanes' low halves count. See sdk/cpu/philox.h.
struct Words {
  U64 word[4];
};
Words philox(const DrawInput& in, U64 block) {
  U64 c0 = U64{} + in.position, c1 = {}, c2 = block, c3 = {};
  uint32_t key0 = in.key[0], key1 = in.key[1];
  for (int round = 0; round < 10; ++round) {
    const U64 a = multiply(c0, U64{} + 0xd2511f53u), b = multiply(c2, U64{} + 0xcd9e8d57u);
    c0 = (b >> 32) ^ c1 ^ key0;
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ key1;
    c3 = a;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

// log(1 + d), 1 + d in [sqrt(1/2), sqrt(2)): 2 atanh(d / (2 + d)).
F32 log_near_one(F32 d) {
  const F32 s = d / (2.0F + d), z = s * s;
  return 2.0F * s + 2.0F * s * z * (1.0F / 3 + z * (1.0F / 5 + z * (1.0F / 7 + z * (1.0F / 9))));
}
// x = 2^exponent (1 + rest), 1 + rest in [sqrt(1/2), sqrt(2)). x: positive, normal.
struct Binary {
  F32 exponent, rest;
};
Binary split_binary(F32 x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // the bits of sqrt(1/2)
  const U32 above = __builtin_bit_cast(U32, x) - kRootHalf;
  const F32 m = __builtin_bit_cast(F32, (above & 0x7fffffu) + kRootHalf);
  return {__builtin_convertvector(__builtin_bit_cast(I32, above) >> 23, F32), m - 1.0F};
}

// -log(q) of the words.
F32 noise_of(U32 word) {
  const F32 u = (__builtin_convertvector(__builtin_bit_cast(I32, word >> 1), F32) + 0.5F) * 0x1p-31F;
  const F32 rest = 1.0F - u;
  const F32 v = rest > 0.0F ? rest : 0x1p-25F + F32{};  // u may have been rounded to 1
  Binary b = split_binary(v);
  // Near 1, v has lost the low bits of u, which decide among likely candidates.
  b.rest = b.exponent == 0.0F ? -u : b.rest;
  const F32 q = -(b.exponent * 0x1.62e43p-1F + log_near_one(b.rest));
  b = split_binary(q);
  return -(b.exponent * 0x1.62e43p-1F + log_near_one(b.rest));
}

struct Lanes {
  F32 score = kOut + F32{};
  U32 id = ~U32{};

  void take(F32 logit, U32 word, U32 token) {
    const F32 s = logit > kOut ? logit + noise_of(word) : kOut + F32{};  // infinite logits become no NaN
    const I32 better = (s > score) | ((s == score) & (token < id));
    score = better ? s : score;
    id = better ? token : id;
  }
};

void take_run(const DrawInput& in, uint32_t first, const float* logit, Lanes& best) {
  const Words w = philox(in, counting_from<U64>(first / 4));
  const U64 low = (w.word[0] & 0xffffffffu) | w.word[1] << 32, high = (w.word[2] & 0xffffffffu) | w.word[3] << 32;
  const U32 token = counting_from<U32>(first);
  best.take(load<F32>(logit), __builtin_bit_cast(U32, zip_low(low, high)), token);
  best.take(load<F32>(logit + kLanes), __builtin_bit_cast(U32, zip_high(low, high)), token + kLanes);
}

void take_ids(const DrawInput& in, const int32_t* id, const float* logit, Lanes& best) {
  for (uint32_t half = 0; half < kGroup; half += kLanes) {
    const U32 token = load<U32>(id + half);
    U64 word[2];
    for (uint32_t odd = 0; odd < 2; ++odd) {
      const U64 own = __builtin_bit_cast(U64, token) >> 32 * odd & 0xffffffffu;
      const Words w = philox(in, own >> 2);
      const U64 low = (own & 1) != 0 ? w.word[1] : w.word[0], high = (own & 1) != 0 ? w.word[3] : w.word[2];
      word[odd] = (own & 2) != 0 ? high : low;
    }
    best.take(load<F32>(logit + half), __builtin_bit_cast(U32, (word[0] & 0xffffffffu) | word[1] << 32), token);
  }
}

Draw draw(const DrawInput& in) {
  Lanes best;
  float logit[kGroup];
  int32_t id[kGroup] = {};
  for (uint32_t begin = 0; begin < in.n; begin += kGroup) {
    const bool whole = in.n - begin >= kGroup;
    for (uint32_t i = 0; !whole && i < kGroup; ++i) {
      const bool there = begin + i < in.n;
      logit[i] = there ? in.logit[begin + i] : kOut;
      id[i] = there && in.id != nullptr ? in.id[begin + i] : 0;
    }
    const float* from = whole ? in.logit + begin : logit;
    if (in.id == nullptr) {
      take_run(in, in.first + begin, from, best);
    } else {
      take_ids(in, whole ? in.id + begin : id, from, best);
    }
  }
  Draw winner = {kOut, -1};
  for (uint32_t i = 0; i < kLanes; ++i) {
    const auto token = static_cast<int32_t>(best.id[i]);
    const bool tie = best.score[i] == winner.score && best.id[i] < static_cast<uint32_t>(winner.id);
    if (best.score[i] > kOut && (best.score[i] > winner.score || tie)) winner = {best.score[i], token};
  }
  return winner;
}
