"""A graph of arrows between files, and its cycles."""

from collections import deque


class Graph:
    """Arrows between files: `graph.names[source][target]` are the names of `target` that `source` uses."""

    def __init__(self):
        self.names = {}
        # What a file names outside of the tree: for each file, dotted or `::` paths.
        self.outside = {}

    def add_file(self, file):
        self.names.setdefault(file, {})
        self.outside.setdefault(file, set())

    def add(self, source, target, name):
        self.add_file(source)
        self.add_file(target)
        if source != target:
            self.names[source].setdefault(target, set()).add(name)

    def arrows(self):
        """Every arrow as (source, target, sorted names)."""
        for source in sorted(self.names):
            for target in sorted(self.names[source]):
                yield source, target, sorted(self.names[source][target])

    def components(self):
        """The sets of two or more files each of which reaches all others of its set."""
        order, seen = [], set()
        for root in sorted(self.names):
            self._finish(root, seen, order)
        backwards = {file: set() for file in self.names}
        for source, target, _ in self.arrows():
            backwards[target].add(source)
        found, placed = [], set()
        for root in reversed(order):
            if root in placed:
                continue
            component, waiting = set(), [root]
            while waiting:
                file = waiting.pop()
                if file not in placed:
                    placed.add(file)
                    component.add(file)
                    waiting.extend(backwards[file] - placed)
            if len(component) > 1:
                found.append(component)
        return sorted(found, key=lambda component: (-len(component), sorted(component)))

    def _finish(self, root, seen, order):
        """Appends what `root` reaches to `order`, each file after those that it names."""
        if root in seen:
            return
        seen.add(root)
        stack = [(root, iter(sorted(self.names[root])))]
        while stack:
            file, targets = stack[-1]
            target = next((target for target in targets if target not in seen), None)
            if target is None:
                order.append(file)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(sorted(self.names[target]))))

    def shortest_cycle(self, component):
        """Files of the shortest cycle in a component; the last names the first."""
        best = None
        for start in sorted(component):
            path = self._way_back(start, component)
            if path and (best is None or len(path) < len(best)):
                best = path
        return best

    def _way_back(self, start, inside):
        before = {}
        waiting = deque([start])
        while waiting:
            file = waiting.popleft()
            for target in sorted(self.names[file]):
                if target == start:
                    path = [file]
                    while path[-1] != start:
                        path.append(before[path[-1]])
                    return path[::-1]
                if target in inside and target not in before:
                    before[target] = file
                    waiting.append(target)
        return None

    def cycles(self):
        """For each component a text: how large it is, and its shortest cycle with the names that make each arrow."""
        texts = []
        for component in self.components():
            cycle = self.shortest_cycle(component)
            lines = [f"a cycle of {len(component)} files: {', '.join(sorted(component))}", "  the shortest way around:"]
            for source, target in zip(cycle, cycle[1:] + cycle[:1], strict=True):
                lines.append(f"    {source} -> {target}: {', '.join(sorted(self.names[source][target]))}")
            texts.append("\n".join(lines))
        return texts
