#include "support/cases/call_fields.h"

#include <utility>

namespace fa::test {
namespace {

/// Adds the fields of keys or values as a list: "k[0]", "k[1]", ...
void AddList(const char* name, std::span<const TensorView> views, std::vector<TensorField>* fields) {
  for (size_t b = 0; b < views.size(); ++b) {
    fields->emplace_back(std::string(name) + "[" + std::to_string(b) + "]", const_cast<TensorView*>(&views[b]));
  }
}

}  // namespace

CallFields FieldsOf(AttentionArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"v", &a->v},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"pse", &a->pse},
           {"dense_mask", &a->dense_mask},
           {"drop_mask", &a->drop_mask},
           {"sink", &a->sink},
           {"out", &a->out},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"lse", &a->lse}},
          {{"cu_q", &a->cu_q}, {"cu_kv", &a->cu_kv}}};
}

CallFields FieldsOf(AttentionGradArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"v", &a->v},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"pse", &a->pse},
           {"dense_mask", &a->dense_mask},
           {"drop_mask", &a->drop_mask},
           {"sink", &a->sink},
           {"out", &a->out},
           {"d_out", &a->d_out},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"dq", &a->dq},
           {"dk", &a->dk},
           {"dv", &a->dv},
           {"dq_rope", &a->dq_rope},
           {"dk_rope", &a->dk_rope},
           {"dpse", &a->dpse},
           {"dslopes", &a->dslopes},
           {"dsink", &a->dsink}},
          {{"cu_q", &a->cu_q}, {"cu_kv", &a->cu_kv}}};
}

CallFields FieldsOf(PromptAttentionArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"v", &a->v},
           {"pse", &a->pse},
           {"dense_mask", &a->dense_mask},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"sink", &a->sink},
           {"deq_scale1", &a->deq_scale1},
           {"quant_scale1", &a->quant_scale1},
           {"deq_scale2", &a->deq_scale2},
           {"quant_scale2", &a->quant_scale2},
           {"quant_offset2", &a->quant_offset2},
           {"out", &a->out},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"lse", &a->lse}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}, {"cu_q", &a->cu_q}, {"cu_kv", &a->cu_kv}}};
}

CallFields FieldsOf(DecodeAttentionArgs* a) {
  CallFields fields{{{"q", &a->q},
                     {"q_rope", &a->q_rope},
                     {"block_table", &a->block_table},
                     {"antiquant_scale", &a->antiquant_scale},
                     {"antiquant_offset", &a->antiquant_offset},
                     {"deq_scale1", &a->deq_scale1},
                     {"quant_scale1", &a->quant_scale1},
                     {"deq_scale2", &a->deq_scale2},
                     {"pse", &a->pse},
                     {"dense_mask", &a->dense_mask},
                     {"sink", &a->sink},
                     {"quant_scale2", &a->quant_scale2},
                     {"quant_offset2", &a->quant_offset2},
                     {"out", &a->out},
                     {"lse", &a->lse}},
                    {{"lengths_kv", &a->lengths_kv}, {"lengths_q", &a->lengths_q}}};
  AddList("k", a->k, &fields.tensors);
  AddList("v", a->v, &fields.tensors);
  AddList("k_rope", a->k_rope, &fields.tensors);
  return fields;
}

CallFields FieldsOf(SparseAttentionArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"v", &a->v},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"sparse_indices", &a->sparse_indices},
           {"block_table", &a->block_table},
           {"sink", &a->sink},
           {"out", &a->out},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"p_head_mean", &a->p_head_mean}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(SparseAttentionGradArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"v", &a->v},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"sparse_indices", &a->sparse_indices},
           {"sink", &a->sink},
           {"out", &a->out},
           {"d_out", &a->d_out},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"dq", &a->dq},
           {"dk", &a->dk},
           {"dv", &a->dv},
           {"dq_rope", &a->dq_rope},
           {"dk_rope", &a->dk_rope},
           {"dsink", &a->dsink}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(LightningIndexerArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"weights", &a->weights},
           {"block_table", &a->block_table},
           {"sparse_indices", &a->sparse_indices},
           {"sparse_values", &a->sparse_values}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(LightningIndexerGradArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"weights", &a->weights},
           {"sparse_indices", &a->sparse_indices},
           {"d_values", &a->d_values},
           {"dq", &a->dq},
           {"dk", &a->dk},
           {"dweights", &a->dweights}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(DenseIndexerLseArgs* a) {
  return {{{"q_index", &a->q_index},
           {"k_index", &a->k_index},
           {"weights", &a->weights},
           {"softmax_max_index", &a->softmax_max_index},
           {"softmax_sum_index", &a->softmax_sum_index}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(SparseIndexerLossArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"q_index", &a->q_index},
           {"k_index", &a->k_index},
           {"weights", &a->weights},
           {"sparse_indices", &a->sparse_indices},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"p_head_mean", &a->p_head_mean},
           {"dq_index", &a->dq_index},
           {"dk_index", &a->dk_index},
           {"dweights", &a->dweights},
           {"loss", &a->loss}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(DenseIndexerLossArgs* a) {
  return {{{"q", &a->q},
           {"k", &a->k},
           {"q_rope", &a->q_rope},
           {"k_rope", &a->k_rope},
           {"q_index", &a->q_index},
           {"k_index", &a->k_index},
           {"weights", &a->weights},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum},
           {"softmax_max_index", &a->softmax_max_index},
           {"softmax_sum_index", &a->softmax_sum_index},
           {"dq_index", &a->dq_index},
           {"dk_index", &a->dk_index},
           {"dweights", &a->dweights},
           {"loss", &a->loss}},
          {{"lengths_q", &a->lengths_q}, {"lengths_kv", &a->lengths_kv}}};
}

CallFields FieldsOf(MergeArgs* a) {
  return {{{"prev_out", &a->prev_out},
           {"cur_out", &a->cur_out},
           {"prev_max", &a->prev_max},
           {"cur_max", &a->cur_max},
           {"prev_sum", &a->prev_sum},
           {"cur_sum", &a->cur_sum},
           {"out", &a->out},
           {"softmax_max", &a->softmax_max},
           {"softmax_sum", &a->softmax_sum}},
          {}};
}

}  // namespace fa::test
