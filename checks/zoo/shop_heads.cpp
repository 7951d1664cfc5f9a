// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Attention: features of other models that are left on, layouts of heads, tiles and numbers of few bits.
#include "checks/zoo/shop_attention.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;
using Twist = AttentionTwist;

Kernel both(Twist twist) { return twisted_attention(twist, twist); }
Kernel front(Twist twist) { return twisted_attention(twist, Twist::none); }
Kernel back(Twist twist) { return twisted_attention(Twist::none, twist); }

void add_features(std::vector<Specimen>& out) {
  add(out, "attention",
      {{"softcap_left_on", 45, "scores are 30 tanh(s/30), value and gradient", "scores that are not small", V::bug,
        "tanh|softcap|capped|bounded|squash", both(Twist::softcap)},
       {"window_left_on", 32, "a query sees the last 16 keys alone", "more than 16 keys", V::bug,
        "window|mask|band|leaves out|left out|lost|hidden", both(Twist::window_of_16), kAllTypes, V::structural},
       {"tile_not_masked", 32, "the mask is of tiles of 16 alone: within one, a query sees the future", "causal",
        V::bug, "mask|future|leak|triangle|tile|diagonal", both(Twist::tile_open), kAllTypes, V::structural},
       {"distance_bias_left_on", 44, "scores lose a quarter of the distance of query and key", "more than one key",
        V::bug, "distance|bias|position|place|slope|added to the scores", both(Twist::distance_bias)},
       {"scale_of_padded_head", 5, "1/sqrt(E), with E rounded up to a multiple of 8", "E no multiple of 8", V::bug,
        "factor|scale|count|extent|multiple of 8|sqrt|root|constant", both(Twist::scale_of_padded)},
       {"head_tail_lost", 13, "q k^T leaves out what follows the last full vector of 8 of E",
        "E that is no multiple of 8", V::bug, "tail|last|leaves out|left out|lost|vector|multiple of 8",
        both(Twist::columns_of_8), kAllTypes, V::structural},
       {"keys_by_time_first", 45, "k is read as [B, T, H, E]", "more than one head", V::structural,
        "layout|transpos|permut|axes|exchang|another row|another head|rows are not independent|changes with other rows",
        both(Twist::keys_by_time_first), kAllTypes, V::bug},
       {"rotary_left_on", 45, "q and k are turned by their places in forward", "more than one key", V::bug,
        "rotat|rotary|turned|place|position|cos|sin(", front(Twist::rotary)}},
      {});
}

void add_forward(std::vector<Specimen>& out) {
  add(out, "attention",
      {{"normalised_by_columns", 8, "the exponentials are divided by their sum over the queries", "more than one query",
        V::bug, "axis|over the queries|another axis|column|transpos|normali", front(Twist::over_queries), kAllTypes,
        V::structural},
       {"padded_keys_counted", 44, "keys are padded with zeros to a multiple of 16, and count in the sum",
        "T no multiple of 16, not causal", V::bug, "padd|zero|extra|one more|added to the sum|normali|multiple of 16",
        front(Twist::padded_keys)},
       {"shift_by_hidden_keys", 28, "the maximum that is taken off is that of hidden keys too",
        "causal, hidden scores far above those seen", V::bug,
        "overflow|underflow|infinite|shift|maximum|hidden|mask|0/0|future|leak", front(Twist::shift_by_hidden),
        kAllTypes, V::range_declared},
       {"output_not_rescaled", 40, "the sum is rescaled when the maximum grows, and o is not", "more than 16 keys",
        V::bug, "rescal|maximum|shift|tile|weigh", front(Twist::sum_rescaled_alone)},
       {"lse_without_shift", 7, "lse is saved as the logarithm of the sum alone, without the maximum", "any", V::bug,
        "shift|maximum|lse|without|missing|factor|overflow", front(Twist::lse_without_shift)},
       {"p_in_e4m3", 25, "p is rounded to e4m3 before it meets v", "any", V::precision_contract,
        "rounded|stored|keeps|takes|e4m3|4 bits", front(Twist::p_in_e4m3), kAllTypes, V::bug},
       {"cubic_exponential", 29, "2^f by a polynomial of degree 3", "any", V::precision_contract,
        "exp is|accurate|approx|polynomial|fast|bits", front(Twist::cubic_exponential), kFp32, V::bug},
       {"scaled_q_in_storage", 25, "q / sqrt(E) is rounded to the storage type", "E no power of four",
        V::precision_contract, "rounded|stored|keeps|takes", front(Twist::q_in_storage), kHalfTypes, V::bug}},
      {});
}

void add_backward(std::vector<Specimen>& out) {
  add(out, "attention",
      {{"dp_of_keys", 7, "dp = do k^T, where v is due", "any", V::bug,
        "another input|other input|k for v|swap|exchang|in place of v|takes k", back(Twist::dp_of_keys)},
       {"delta_without_o", 3, "delta = sum do, where sum do o is due", "any", V::bug,
        "delta|dot|o is missing|without|missing|weigh|sum of the cotangent", back(Twist::delta_without_o)},
       {"dq_added_in_storage", 23, "tiles of keys add to a dq of the storage type", "more than 16 keys",
        V::precision_contract, "accumulates in|partial|rounded|stored|keeps|takes", back(Twist::dq_in_storage),
        kHalfTypes, V::bug},
       {"pair_of_heads_summed", 45, "dk and dv are those of two heads together, as with grouped queries",
        "more than one head", V::structural,
        "another head|another row|head|rows are not independent|changes with other rows", back(Twist::pair_of_heads),
        kAllTypes, V::bug},
       {"dkv_mask_reversed", 32, "for dk and dv a key is seen by the queries before it", "causal", V::bug,
        "mask|triangle|revers|transpos|future|hidden|leak|overflow", back(Twist::dkv_mask_reversed), kAllTypes,
        V::structural},
       {"ds_not_transposed", 7, "dk = ds q, where ds^T q is due", "more than one key", V::bug,
        "transpos|exchang|axes|mask|triangle|swap", back(Twist::ds_not_transposed), kAllTypes, V::structural},
       {"lse_of_padded_rows", 20, "backward reads lse as if its rows were padded to a multiple of 16",
        "T no multiple of 16, more than one head", V::structural,
        "lse|stride|another row|another head|index|padd|rows are not independent|changes with other rows",
        back(Twist::lse_of_padded_rows), kAllTypes, V::bug},
       {"delta_in_bf16", 27, "delta is kept in bf16", "any", V::precision_contract, "rounded|stored|saved|keeps|takes",
        back(Twist::delta_in_bf16), kAllTypes, V::bug},
       {"dropout_scale_alone", 35, "p and dp are divided by 0.9 in backward, as with dropout, which forward has not",
        "any", V::bug, "factor|scale|dropout|times 1.1|0.9", back(Twist::dropout_scale)}},
      {});
}

}  // namespace

std::vector<Specimen> shop_attention_specimens() {
  std::vector<Specimen> out;
  add_features(out);
  add_forward(out);
  add_backward(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
