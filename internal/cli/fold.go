package cli

// mostAlike is the most items with the same cause that are printed one by one.
const mostAlike = 3

// A fold is an item that is printed, and the others with the same cause, which are only counted.
type fold[T any] struct {
	first  T
	others []T
}

// folded groups items for printing: if more than mostAlike have the same cause, the first of them is printed for all.
func folded[T any](all []T, cause func(T) string) []fold[T] {
	count := map[string]int{}
	for _, one := range all {
		count[cause(one)]++
	}
	var folds []fold[T]
	places := map[string]int{}
	for _, one := range all {
		key := cause(one)
		if at, isKnown := places[key]; isKnown && count[key] > mostAlike {
			folds[at].others = append(folds[at].others, one)
			continue
		}
		places[key] = len(folds)
		folds = append(folds, fold[T]{first: one})
	}
	return folds
}
