#pragma once

#include <trireme/tensor/views.hpp>

/// Kernels of local training (Douillard et al. 2023, "DiLoCo", arXiv 2311.08105). Asynchronous on
/// exec. M: float or double; D: M or Bf16, the type of the message.
namespace trireme::kernels {

/// d = outer − local, rounded to D. d, outer, local [n].
template <class M, class D>
void outer_difference(const Exec& exec, View1<D> d, View1<const M> outer, View1<const M> local);

/// mean[i] = (1/W) Σ_w all[w, i], summed in double in ascending order of w, rounded to D. mean [n],
/// all [W, n].
template <class D>
void mean_of_workers(const Exec& exec, View1<D> mean, View2<const D> all);

/// Rule of an outer step: SGD with momentum (Sutskever et al. 2013), as in torch.optim.SGD.
struct OuterRule {
  double learning_rate = 1;
  double momentum = 0;
  bool nesterov = false;
};

/// v = momentum v + d; outer −= η (d + momentum v) with Nesterov momentum, otherwise η v, with η =
/// learning_rate. outer, v, d [n]; v may be empty if the momentum is 0.
template <class M, class D>
void outer_update(const Exec& exec, View1<M> outer, View1<M> v, View1<const D> d,
                  const OuterRule& rule);

/// local = mixing local + (1 − mixing) outer; if mixing is 0, exactly outer. local, outer [n].
/// Douillard et al. 2025, "Streaming DiLoCo", arXiv 2501.18512, section 2.2.
template <class M>
void mix_with_outer(const Exec& exec, View1<M> local, View1<const M> outer, double mixing);

/// Exchanges the contents of a and b [n]. T: float, double, Bf16 or Fp16.
template <class T>
void swap_contents(const Exec& exec, View1<T> a, View1<T> b);

}  // namespace trireme::kernels
