/* Every operator table: X(name) for `const op_row name[]`, each defined in the file of its family and ended by a {NULL}
 * row. */
#ifndef OPS_TABLES_H
#define OPS_TABLES_H

#define OPS_TABLES(X)    \
    X(ops_unary)         \
    X(ops_binary)        \
    X(ops_compare)       \
    X(ops_bitwise)       \
    X(ops_activation)    \
    X(ops_complex)       \
    X(ops_copy)          \
    X(ops_control)       \
    X(ops_factory)       \
    X(ops_foreach)       \
    X(ops_optimizer)     \
    X(ops_distributions) \
    X(ops_rejection)     \
    X(ops_special)       \
    X(ops_bessel)        \
    X(ops_polynomials)   \
    X(ops_reduce)        \
    X(ops_softmax)       \
    X(ops_norm)          \
    X(ops_matmul)        \
    X(ops_loss)          \
    X(ops_ctc)           \
    X(ops_distance)      \
    X(ops_attention)     \
    X(ops_linalg)        \
    X(ops_lu)            \
    X(ops_qr)            \
    X(ops_jacobi)        \
    X(ops_shape)         \
    X(ops_shape_scatter) \
    X(ops_arrange)       \
    X(ops_pad)           \
    X(ops_index)         \
    X(ops_scatter)       \
    X(ops_embedding)     \
    X(ops_scan)          \
    X(ops_sort)          \
    X(ops_search)        \
    X(ops_convolution)   \
    X(ops_pool)          \
    X(ops_max_pool)      \
    X(ops_upsample)      \
    X(ops_grid)          \
    X(ops_rnn)           \
    X(ops_fft)           \
    X(ops_segment)       \
    X(ops_fake_quantize) \
    X(ops_prims)         \
    X(ops_householder)   \
    X(ops_assert)

#endif
