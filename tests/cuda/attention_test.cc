// Attention on a GPU is held against float64, through the components' own tables.
#include <cstring>

#include "attention_cases.h"

namespace tenon::test {
namespace {

TEST_F(CudaAttention, DecodesEveryLength) {
  for (const uint32_t length : {1u, 15u, 16u, 17u, 64u, 65u, 255u, 256u, 257u, 1000u, 5000u}) {
    AttentionCase c{
        .q_heads = 4, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .sequences = {{length - 1, 1}}, .codec = TENON_F16};
    check(*flash_, c, length);
    c.page_tokens = 0;
    c.codec = TENON_BF16;
    c.append = true;
    c.rotated = 128;
    check(*flash_, c, length);
  }
}

TEST_F(CudaAttention, DecodesEveryShapeOfHeads) {
  for (const uint32_t dim : {8u, 40u, 64u, 72u, 80u, 96u, 128u, 200u, 256u}) {
    for (const uint32_t group : {1u, 2u, 3u, 4u, 7u, 8u, 16u}) {
      for (const bool append : {false, true}) {
        const tenon_format codec = group % 2 == 0 ? TENON_F16 : TENON_BF16;
        check(*flash_,
              {.q_heads = 2 * group,
               .kv_heads = 2,
               .k_dim = dim,
               .v_dim = dim,
               .sequences = {{332, 1}, {50, 2}},
               .codec = codec,
               .append = append,
               .rotated = static_cast<int32_t>(append ? dim / 2 : 0),
               .pairing = static_cast<int32_t>(group % 2)},
              dim + group);
      }
    }
  }
  check(*flash_,
        {.q_heads = 4,
         .kv_heads = 2,
         .k_dim = 128,
         .v_dim = 64,
         .sequences = {{100, 3}},
         .codec = TENON_F16,
         .append = true},
        1);
}

TEST_F(CudaAttention, VerifiesDraftsOfSeveralSequences) {
  for (const bool append : {false, true}) {
    AttentionCase c{.q_heads = 8,
                    .kv_heads = 2,
                    .k_dim = 128,
                    .v_dim = 128,
                    .sequences = {{0, 3}, {1021, 5}, {63, 1}, {509, 16}, {7, 2}},
                    .codec = TENON_F16,
                    .append = append,
                    .norm = append,
                    .rotated = append ? 128 : 0};
    check(*flash_, c, 3);
    for (const uint32_t window : {1u, 50u, 400u}) {
      c.window = window;
      check(*flash_, c, window);
    }
  }
}

// Makes sequences of one row or two. Without a window the keys are rotated and appended by attention itself.
AttentionCase sequences_of_few_rows(uint32_t count, uint32_t dim, uint32_t window) {
  AttentionCase c{.q_heads = 12,
                  .kv_heads = 4,
                  .k_dim = dim,
                  .v_dim = dim,
                  .codec = dim == 96 ? TENON_BF16 : TENON_F16,
                  .append = window == 0,
                  .rotated = static_cast<int32_t>(window == 0 ? dim : 0)};
  c.window = window;
  for (uint32_t i = 0; i < count; ++i) c.sequences.push_back({i * i % 701, 1 + i % 7 / 5});
  return c;
}

// With one of these numbers a warp takes a sequence by itself, and with the other rows are split by the step's shape.
TEST_F(CudaAttention, DecodesManySequences) {
  for (const uint32_t sequences : {20u, 150u}) {
    for (const uint32_t dim : {64u, 96u, 128u}) {
      for (const uint32_t window : {0u, 200u}) {
        AttentionCase c = sequences_of_few_rows(sequences, dim, window);
        c.sequences[1].before = 3000;
        check(*flash_, c, sequences + dim + window);
      }
    }
  }
}

// There are more tiles of queries than blocks for them: each takes several, some of them after longer ones.
TEST_F(CudaAttention, PrefillsMoreShortPromptsThanItHasBlocksFor) {
  for (const uint32_t dim : {64u, 96u, 128u}) {
    for (const tenon_format codec : {TENON_F16, TENON_BF16, TENON_I8, TENON_U8}) {
      for (const uint32_t window : {0u, 200u}) {
        AttentionCase c{.q_heads = 12, .kv_heads = 4, .k_dim = dim, .v_dim = dim, .codec = codec};
        c.window = window;
        for (uint32_t i = 0; i < 60; ++i) c.sequences.push_back({i * i % 701, i % 11 == 0 ? 1 : 17 + i % 13});
        c.sequences[40].rows = 140;
        check(*flash_, c, dim + window);
      }
    }
  }
}

// Prompts go through other kernels than the sequences beside them that have few rows.
TEST_F(CudaAttention, TakesPromptsBesideSequencesOfFewRows) {
  for (const uint32_t sequences : {3u, 40u, 150u}) {
    for (const uint32_t dim : {64u, 96u, 128u}) {
      for (const uint32_t window : {0u, 200u}) {
        AttentionCase c = sequences_of_few_rows(sequences, dim, window);
        c.sequences[0].rows = 8;
        c.sequences[1] = {3000, 9};
        c.sequences[sequences / 2].rows = 200;
        c.sequences.back() = {130, 131};
        check(*flash_, c, sequences + dim + window);
      }
    }
  }
}

TEST_F(CudaAttention, HasWindowsAndCaps) {
  for (const uint32_t before : {99u, 1500u, 3000u}) {
    for (const uint32_t rows : {2u, 40u}) {
      AttentionCase c{
          .q_heads = 4, .kv_heads = 2, .k_dim = 64, .v_dim = 64, .sequences = {{before, rows}}, .codec = TENON_F16};
      c.softcap = 5;
      check(*flash_, c, before);
      c.softcap = 0;
      c.window = 1030;
      check(*flash_, c, before);
      c.window = 17;
      check(*flash_, c, before);
    }
  }
}

// Verification of drafts equals decoding them one by one, whatever else is in the step and whatever the program's
// bounds.
TEST_F(CudaAttention, KeepsEveryBitOfARowAmongOthers) {
  for (const uint32_t window : {0u, 300u}) {
    for (const uint32_t before : {3u, 60u, 252u, 381u, 509u, 1021u, 1322u, 4093u}) {
      for (const bool append : {false, true}) {
        const AttentionCase c{.q_heads = 8,
                              .kv_heads = 2,
                              .k_dim = 128,
                              .v_dim = 128,
                              .sequences = {{before, 5}, {77, 3}},
                              .codec = TENON_BF16,
                              .window = window,
                              .append = append,
                              .rotated = append ? 128 : 0};
        // With this seed the host's rope in f64 and the GPU's in f32 round every key to the same bf16, which not all
        // have: a row alone finds the keys before it as the host has rounded them.
        const AttentionHost host(c, before + 1);
        const AttentionHost::Answer together = host.run(*flash_, {.kv_len = 9000, .rows_per_seq = 16});
        ASSERT_EQ(together.fault, "") << to_string(c);
        const size_t row = together.out.size() / host.rows();
        for (uint32_t r = 0; r < host.rows(); ++r) {
          const AttentionHost::Answer alone = host.run(*flash_, {.begin = r, .end = r + 1, .padding = 0});
          ASSERT_EQ(alone.fault, "") << to_string(c);
          EXPECT_EQ(std::memcmp(alone.out.data(), together.out.data() + r * row, row * sizeof(float)), 0)
              << to_string(c) << " row " << r;
        }
      }
    }
  }
}

TEST_F(CudaAttention, PrefillsEveryLength) {
  for (const uint32_t rows : {17u, 63u, 64u, 65u, 127u, 128u, 129u, 200u, 257u, 700u}) {
    for (const uint32_t before : {0u, 1u, 100u, 1000u}) {
      AttentionCase c{
          .q_heads = 2, .kv_heads = 1, .k_dim = 128, .v_dim = 128, .sequences = {{before, rows}}, .codec = TENON_F16};
      c.page_tokens = rows % 2 == 0 ? 0 : 64;
      c.codec = before % 2 == 0 ? TENON_F16 : TENON_BF16;
      check(*flash_, c, rows);
      c.append = true;
      c.rotated = 128;
      check(*flash_, c, rows);
    }
  }
}

TEST_F(CudaAttention, PrefillsEveryShapeOfHeads) {
  for (const uint32_t dim : {8u, 40u, 64u, 72u, 80u, 96u, 128u, 200u, 256u}) {
    for (const uint32_t group : {1u, 3u, 4u}) {
      const tenon_format codec = group == 1 ? TENON_F16 : TENON_BF16;
      AttentionCase c{.q_heads = 2 * group,
                      .kv_heads = 2,
                      .k_dim = dim,
                      .v_dim = dim,
                      .sequences = {{20, 150}, {0, 33}, {300, 1}},
                      .codec = codec,
                      .append = true,
                      .norm = group == 3,
                      .rotated = static_cast<int32_t>(dim)};
      check(*flash_, c, dim);
      c.window = 70;
      c.page_tokens = 16;
      check(*flash_, c, dim);
      c.softcap = 6;
      check(*flash_, c, dim);
    }
  }
}

// A chain of three layers must give the same bits and append the same, however it is launched; the host compares that.
TEST_F(CudaAttention, OverlapsWithItsNeighbours) {
  for (const uint32_t rows : {1u, 5u, 100u}) {
    const AttentionCase c{.q_heads = 8,
                          .kv_heads = 8,
                          .k_dim = 128,
                          .v_dim = 128,
                          .sequences = {{700, rows}, {90, 1}},
                          .codec = TENON_F16,
                          .append = true,
                          .rotated = 128};
    const AttentionHost host(c, rows);
    const AttentionHost::Answer list = host.run(*flash_);
    expect_close(c, host, list);
    for (uint64_t i = 0; i < 10; ++i) {
      const AttentionHost::Answer other = host.run(*flash_, {.repeats = 3, .seed = i});
      ASSERT_EQ(other.fault, "");
      ASSERT_EQ(other.out, list.out);
      ASSERT_EQ(other.cache, list.cache);
    }
  }
}

// Every byte of the cache but the appended tokens stays as it is, and those are what rope and rounding make of them.
TEST_F(CudaAttention, AppendsWhatIsNew) {
  for (const uint32_t rows : {1u, 4u, 16u, 150u}) {
    const auto [appended, given] = expect_same_cache(*flash_,
                                                     {.q_heads = 6,
                                                      .kv_heads = 2,
                                                      .k_dim = 96,
                                                      .v_dim = 96,
                                                      .sequences = {{130, rows}, {5, rows}},
                                                      .codec = TENON_F16},
                                                     rows);
    EXPECT_EQ(appended, given) << rows;
  }
}

TEST_F(CudaAttention, IsExactOverF32) {
  for (const uint32_t dim : {5u, 64u, 256u}) {
    for (const uint32_t rows : {1u, 30u}) {
      AttentionCase c{.q_heads = 6,
                      .kv_heads = 2,
                      .k_dim = dim,
                      .v_dim = dim,
                      .sequences = {{400, rows}, {3, 1}},
                      .codec = TENON_F32,
                      .window = 333};
      check(*flash_, c, dim);
      c.window = 0;
      c.softcap = 4;
      check(*flash_, c, dim);
    }
  }
}

TEST_F(CudaAttention, ReferenceReadsEveryCodec) {
  const CudaComponent reference("attention", "reference");
  for (const tenon_format codec : {TENON_F32, TENON_F16, TENON_BF16}) {
    const AttentionCase c{
        .q_heads = 6, .kv_heads = 2, .k_dim = 80, .v_dim = 48, .sequences = {{40, 6}, {900, 2}}, .codec = codec};
    check(reference, c, 5);
  }
}

TEST_F(CudaAttention, RefusesWhatItCannotRead) {
  const auto& table = flash_->table<tenon_attention>();
  auto a = sdk::abi_struct<tenon_attn>();
  a.q_heads = a.kv_heads = 2;
  a.k_dim = a.v_dim = 64;
  const tenon_bounds b = CudaRecorder::bounds(1);
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  tenon_kv_format f = sdk::plain_kv_format(TENON_Q8_0);
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &f;
  view.heads = 2;
  view.k_dim = view.v_dim = 64;
  view.page_cells = 64;
  view.columns = 1;
  view.pos_rule = TENON_POS_LINEAR;
  EXPECT_EQ(table.claim(flash_->self(), &a, &view, &b, &claim, &why), TENON_REFUSED);
  EXPECT_NE(std::string(text).find("q8_0"), std::string::npos) << text;
  f = sdk::plain_kv_format(TENON_F16);
  view.pos_rule = 77;
  EXPECT_EQ(table.claim(flash_->self(), &a, &view, &b, &claim, &why), TENON_REFUSED);
  view.pos_rule = TENON_POS_LINEAR;
  a.q_heads = 3;
  EXPECT_EQ(table.claim(flash_->self(), &a, &view, &b, &claim, &why), TENON_REFUSED);
}

// A row whose place lies beyond the cache's capacity leaves everything as it is.
TEST_F(CudaAttention, StaticCacheWritesNothingBeyondItsCapacity) {
  constexpr uint32_t kRows = 4, kCapacity = 45, kHeads = 2, kDim = 24;
  const CudaComponent cache("kv_cache", "static");
  const auto& table = cache.table<tenon_kv_cache>();
  CudaRecorder host(CudaRecorder::bounds(kRows, 1, kCapacity));
  const tenon_bounds& b = *host.recorder()->bounds;
  auto layer = sdk::abi_struct<tenon_kv_geometry>();
  layer.heads = kHeads;
  layer.k_dim = layer.v_dim = kDim;
  const tenon_kv_geometry* layers[] = {&layer};
  auto footprint = sdk::abi_struct<tenon_footprint>();
  ASSERT_EQ(table.plan(cache.self(), layers, 1, &b, &footprint, nullptr), TENON_OK);
  std::vector<tenon_tid> stores;
  std::vector<void*> addresses;
  for (uint32_t i = 0; i < footprint.n_stores; ++i) {
    stores.push_back(host.store(footprint.store_bytes[i]));
    addresses.push_back(host.data(stores.back()));
  }
  ASSERT_EQ(table.attach(cache.self(), addresses.data(), host.device().queue(), nullptr), TENON_OK);
  auto handle = sdk::abi_struct<tenon_kv_stores>();
  handle.store = stores.data();
  const std::vector<float> ones(kRows * kHeads * kDim, 1);
  const tenon_tid k = host.input(TENON_F32, {kRows, kHeads * kDim}, ones);
  const tenon_tid v = host.input(TENON_F32, {kRows, kHeads * kDim}, ones);
  if (table.record_begin != nullptr) {
    ASSERT_EQ(table.record_begin(cache.self(), &handle, host.recorder(), nullptr), TENON_OK);
  }
  ASSERT_EQ(table.record_append(cache.self(), 0, &handle, k, v, host.recorder(), nullptr), TENON_OK);
  const auto at = [&](uint32_t first) {
    for (uint32_t i = 0; i < kRows; ++i) {
      host.step_i32(TENON_STEP_POS)[i] = host.step_i32(TENON_STEP_PLACE)[i] = static_cast<int32_t>(first + i);
    }
    host.step_i32(TENON_STEP_KV_LEN)[0] = static_cast<int32_t>(first);
    host.step_i32(TENON_STEP_SEQ_ROW)[1] = kRows;
    EXPECT_EQ(host.run(), "");
    return host.download<uint8_t>(stores[0]);
  };
  const auto before = at(0);
  EXPECT_NE(before, std::vector<uint8_t>(before.size()));
  EXPECT_EQ(at(kCapacity), before);
}

}  // namespace
}  // namespace tenon::test
