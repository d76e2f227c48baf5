"""Published packages on the dense models they have, behind the parameters of `rankspace.distributions`."""

import torch
from torch import Tensor


def torch_struct_hmm(words: Tensor, log_start: Tensor, log_transition: Tensor, log_emission: Tensor) -> Tensor:
    """log p(words), [batch]: a linear chain CRF with the scores of an HMM. Differentiable."""
    from torch_struct import LinearChain, LogSemiring

    chain = LinearChain(LogSemiring)
    scores = chain.hmm(log_transition.T, log_emission.T, log_start, words)  # [batch, step, next, state]
    log_z, _ = chain.logpartition(scores)
    return LogSemiring.unconvert(log_z)


def hmmlearn_hmm(words: Tensor, log_start: Tensor, log_transition: Tensor, log_emission: Tensor) -> Tensor:
    """The sum of log p(words) over the batch, [1]. Forward only, on the CPU, in float64."""
    from hmmlearn.hmm import CategoricalHMM

    model = CategoricalHMM(n_components=len(log_start), n_features=log_emission.shape[1], init_params="")
    model.startprob_ = log_start.double().exp().numpy()
    model.transmat_ = log_transition.double().exp().numpy()
    model.emissionprob_ = log_emission.double().exp().numpy()
    score = model.score(words.reshape(-1, 1).numpy(), lengths=[words.shape[1]] * len(words))
    return torch.tensor([score])


def torch_struct_pcfg(words: Tensor, log_root: Tensor, log_rule: Tensor, log_emission: Tensor) -> Tensor:
    """log p(words), [batch]: rules are given for each sentence, as the package wants them. Differentiable."""
    from torch_struct import CKY, LogSemiring

    batch = len(words)
    scores = log_emission.T[words], log_rule.expand(batch, -1, -1, -1), log_root.expand(batch, -1)
    log_z, _ = CKY(LogSemiring).logpartition(scores)
    return LogSemiring.unconvert(log_z)
