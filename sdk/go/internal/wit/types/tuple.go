package wit_types

type Tuple2[T0 any, T1 any] struct {
	F0 T0
	F1 T1
}
