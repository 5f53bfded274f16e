"""Networks: backbones, batch normalisation per case, pooling heads. Plain modules that know no labels and no losses."""
