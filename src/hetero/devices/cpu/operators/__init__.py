"""How operators become calls of kernels, by theme; each module registers its operators when it is imported."""
