"""From cases to scores: plan what is unique, encode it once, keep it, compare in float32."""
