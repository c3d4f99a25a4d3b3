// Attention on a GPU over caches in codes is held against float64, through the components' own tables.
#include "attention_cases.h"

namespace tenon::test {
namespace {

constexpr tenon_format kCodes[] = {TENON_I8, TENON_F8E4M3, TENON_U8};

TEST_F(CudaAttention, DecodesCodesOfEveryLength) {
  for (const tenon_format codec : kCodes) {
    for (const uint32_t length : {1u, 31u, 32u, 33u, 64u, 129u, 256u, 257u, 1000u, 5000u}) {
      for (const uint32_t page : {0u, 8u, 32u, 256u}) {
        check(*flash_,
              {.q_heads = 8,
               .kv_heads = 2,
               .k_dim = 128,
               .v_dim = 128,
               .sequences = {{length - 1, 1}},
               .codec = codec,
               .page_tokens = page},
              length + page);
      }
    }
  }
}

TEST_F(CudaAttention, DecodesCodesOfEveryShapeOfHeads) {
  for (const tenon_format codec : kCodes) {
    for (const uint32_t dim : {32u, 64u, 96u, 128u, 224u, 256u}) {
      for (const uint32_t group : {1u, 3u, 8u, 16u}) {
        AttentionCase c{.q_heads = 2 * group,
                        .kv_heads = 2,
                        .k_dim = dim,
                        .v_dim = dim > 32 ? dim - 32 : dim,
                        .sequences = {{332, 1}, {50, 2}, {130, 5}},
                        .codec = codec,
                        .page_tokens = 64};
        check(*flash_, c, dim + group);
        c.window = 50;
        c.softcap = 5;
        check(*flash_, c, dim + group);
      }
    }
  }
}

// Attention itself codes what short steps append, rotated where the cache stores heads so. It puts the codes into the
// tiles that are multiplied: into those that a warp begins with, and into the cache for those that come later.
TEST_F(CudaAttention, DecodesTheCodesThatItAppends) {
  for (const tenon_format codec : kCodes) {
    for (const uint32_t dim : {64u, 128u, 256u}) {
      for (const uint32_t before : {0u, 31u, 100u, 250u, 509u, 1021u, 5000u}) {
        for (const bool hadamard : {false, true}) {
          if (hadamard && dim == 256) continue;  // the cache appends, and ops of their own rotate
          for (const int32_t rotated : {0, static_cast<int32_t>(dim)}) {
            AttentionCase c{.q_heads = 8,
                            .kv_heads = 2,
                            .k_dim = dim,
                            .v_dim = dim,
                            .sequences = {{before, 1}, {7, 3}, {before / 2, 8}},
                            .codec = codec,
                            .append = true,
                            .rotated = rotated,
                            .hadamard = hadamard};
            check(*flash_, c, before + dim);
            c.pairing = 1;
            c.window = 60;
            c.sinks = true;
            check(*flash_, c, before + dim + 1);
          }
        }
      }
    }
  }
}

// Codes and scales are those that the cache's own op stores: the host's, where no rope has been rounded before.
TEST_F(CudaAttention, AppendsTheCodesOfTheCache) {
  for (const tenon_format codec : kCodes) {
    for (const bool hadamard : {false, true}) {
      for (const uint32_t rows : {1u, 5u, 7u}) {
        expect_same_cache(*flash_,
                          {.q_heads = 6,
                           .kv_heads = 2,
                           .k_dim = 128,
                           .v_dim = 128,
                           .sequences = {{130, rows}, {5, rows}},
                           .codec = codec,
                           .hadamard = hadamard},
                          rows);
      }
    }
  }
}

TEST_F(CudaAttention, PrefillsCodes) {
  for (const tenon_format codec : kCodes) {
    for (const auto& [dim, page] : {std::pair(64u, 0u), {96u, 64u}, {128u, 0u}, {128u, 16u}, {128u, 256u}}) {
      AttentionCase c{.q_heads = 4,
                      .kv_heads = 2,
                      .k_dim = dim,
                      .v_dim = dim,
                      .sequences = {{0, 17}, {500, 150}, {127, 128}, {90, 1}},
                      .codec = codec,
                      .page_tokens = page};
      check(*flash_, c, dim + page);
      c.window = 100;
      check(*flash_, c, dim + page);
    }
  }
}

// Long steps with many tiles of queries make fp16 of the codes first: of all heads at once, or of some after the others
// where a sequence may be much longer than the step.
TEST_F(CudaAttention, PrefillsCodesThatAreUnpackedFirst) {
  for (const tenon_format codec : kCodes) {
    for (const auto& [dim, page] : {std::pair(64u, 0u), {128u, 16u}, {128u, 256u}}) {
      AttentionCase c{.q_heads = 32,
                      .kv_heads = 4,
                      .k_dim = dim,
                      .v_dim = dim,
                      .sequences = {{0, 150}, {90, 1}, {200, 140}, {70, 130}},
                      .codec = codec,
                      .page_tokens = page};
      check(*flash_, c, dim + page);
      c = {.q_heads = 141,
           .kv_heads = 3,
           .k_dim = dim,
           .v_dim = dim,
           .sequences = {{9000, 200}},
           .codec = codec,
           .window = 100,
           .page_tokens = page};
      check(*flash_, c, dim + page + 1);
    }
  }
}

TEST_F(CudaAttention, ManySequencesOfCodes) {
  for (const tenon_format codec : kCodes) {
    for (const uint32_t count : {40u, 150u}) {
      AttentionCase c{.q_heads = 12, .kv_heads = 4, .k_dim = 128, .v_dim = 128, .codec = codec};
      for (uint32_t i = 0; i < count; ++i) c.sequences.push_back({i * i % 701, 1 + i % 7 / 5});
      check(*flash_, c, count);
    }
  }
}

// A row has the same bits alone, among drafts and beside other sequences, and in every run.
TEST_F(CudaAttention, RowsOfCodesHaveTheBitsThatTheyHaveAlone) {
  for (const tenon_format codec : kCodes) {
    const AttentionCase c{.q_heads = 8,
                          .kv_heads = 2,
                          .k_dim = 128,
                          .v_dim = 128,
                          .sequences = {{3000, 9}, {70, 2}},
                          .codec = codec,
                          .page_tokens = 64};
    const AttentionHost host(c, 5);
    const auto all = host.run(*flash_, How{});
    ASSERT_EQ(all.fault, "");
    EXPECT_EQ(host.run(*flash_, How{}).out, all.out);
    const size_t row_size = size_t{c.q_heads} * c.v_dim;
    for (const uint32_t row : {0u, 4u, 8u}) {
      const auto alone = host.run(*flash_, {.begin = row, .end = row + 1, .rows_per_seq = 1});
      ASSERT_EQ(alone.fault, "");
      EXPECT_TRUE(
          std::equal(alone.out.begin(), alone.out.end(), all.out.begin() + static_cast<ptrdiff_t>(row * row_size)))
          << tenon_format_name(codec) << " row " << row;
    }
  }
}

}  // namespace
}  // namespace tenon::test
