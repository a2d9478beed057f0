// The nonlinear functions between the products of an MLP.
#pragma once

namespace bulkhead {

enum class Activation {
  kSilu,         // x / (1 + exp(-x))
  kGeluTanh,     // x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))): gelu in its tanh form
  kReluSquared,  // max(x, 0)^2
  kSigmoid,      // 1 / (1 + exp(-x))
};

}  // namespace bulkhead
