"""The random network of the paper's Table 5: the numbers TensorFlow draws, in the layers of the encoder."""

import numpy as np
import pytest

from semishot.paper.authors_network import authors_network, truncated_normal


def test_the_weights_are_those_that_tensorflow_draws():
    """TensorFlow 2.21, `truncated_normal_initializer(stddev=0.01, seed=0)` in a graph of version 1."""
    drawn = truncated_normal(3 * 3 * 64 * 64)
    first = [-0.00399158, 0.00171072, 0.00546518, 0.00422554, -0.01194501, -0.0026633]
    np.testing.assert_allclose(drawn[:6], first, atol=1e-8)
    np.testing.assert_allclose(drawn[-3:], [0.00350084, -0.00452537, 0.0030343], atol=1e-8)
    assert drawn.sum() == pytest.approx(0.29176748, abs=1e-4)
    np.testing.assert_array_equal(drawn[:1726], truncated_normal(1726))


def test_layers_of_one_shape_are_identical():
    first, second, third, fourth = authors_network(channels=3, filters=64).weights
    assert first.shape[2] == 3
    assert second.equal(third)
    assert second.equal(fourth)
    # TensorFlow has (height, width, channels, filters)
    assert second[0, :2, 0, 0, 0].tolist() == first[0, :2, 0, 0, 0].tolist()
    assert second[0, 0, 1, 0, 0].item() == pytest.approx(truncated_normal(65)[64], abs=1e-9)


def test_a_training_s_seed_changes_the_weights_not_that_layers_are_identical():
    drawn = [authors_network(3, 16, seed).weights for seed in (None, 0, 1001)]
    assert not drawn[0][1].equal(drawn[1][1])
    assert not drawn[1][1].equal(drawn[2][1])
    for weights in drawn:
        assert weights[1].equal(weights[3])
        assert 0.008 < weights[1].std() < 0.0095  # 0.01, truncated at two deviations
