package nftables

// maxTable bounds the table of common, in cells.
const maxTable = 16 << 20

// common gives the pairs of positions of a longest common subsequence of two
// lists, in order. Lists that differ in very many places are compared from
// both ends alone.
func common(a, b []string) [][2]int {
	var out [][2]int
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		out = append(out, [2]int{start, start})
		start++
	}
	tail := 0
	for tail < len(a)-start && tail < len(b)-start && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	n, m := len(a)-start-tail, len(b)-start-tail
	if n > 0 && m > 0 && n*m <= maxTable {
		out = append(out, longest(a[start:start+n], b[start:start+m], start)...)
	}
	for i := tail; i > 0; i-- {
		out = append(out, [2]int{len(a) - i, len(b) - i})
	}
	return out
}

func longest(a, b []string, offset int) [][2]int {
	width := len(b) + 1
	length := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			out = append(out, [2]int{offset + i, offset + j})
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return out
}
