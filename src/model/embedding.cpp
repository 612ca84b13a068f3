#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/vocabulary.hpp>
#include <trireme/model/embedding.hpp>

namespace trireme::model {

template <class P>
Embedding<P>::Embedding(const Parameters<P>& parameters, const deck::ModelConfig& m)
    : sequence_(m.sequence),
      token_(parameters.weight("embedding.token", m.vocabulary, m.hidden)),
      position_(parameters.weight("embedding.position", m.sequence, m.hidden)),
      dtoken_(parameters.gradient("embedding.token", m.vocabulary, m.hidden)),
      dposition_(parameters.gradient("embedding.position", m.sequence, m.hidden)) {}

template <class P>
void Embedding<P>::forward(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                           const MicroContext& c) const {
  kernels::embedding_forward<T>(exec, x, tokens, token_, position_, sequence_);
  if (c.dropout > 0) kernels::dropout_forward<T>(exec, x, x, c.dropout_site(0));
}

template <class P>
void Embedding<P>::backward_weight(const Exec& exec, View2<T> dx, View1<const std::int32_t> tokens,
                                   const MicroContext& c) const {
  if (c.dropout > 0) kernels::dropout_backward<T>(exec, dx, dx, c.dropout_site(0));
  kernels::embedding_backward<T>(exec, dtoken_, dposition_, dx, tokens, sequence_);
}

template <class P>
void Embedding<P>::decode(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                          std::int64_t position) const {
  const View2<const T> at(position_.data() + position * extent(position_, 1), 1,
                          position_.extent(1));
  kernels::embedding_forward<T>(exec, x, tokens, token_, at, 1);
}

template class Embedding<Fp32>;
template class Embedding<Fp64>;

}  // namespace trireme::model
