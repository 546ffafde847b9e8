"""Every constant of the estimator, most of them chosen by experiment (experiments/strangers)."""

import numpy as np

# Sizes
BLOCK = 2**19  # numbers in a block of features: 2 MB in float32, which stay in the cache
ROWS_AT_ONCE = 4096  # rows compared with the graph at once
EXACT, LANDMARKS = 2000, 500  # a larger pile than EXACT has LANDMARKS rows in the graph
MOST_LABELED = 2000  # labeled rows in the graph, at most
TINY = 1e-7  # below it nothing has arrived, no probability is smaller

# Where rows are compared
MANY_FEATURES = 32  # from here on the direction of a row matters more than its length
KERNEL_CANDIDATES, KERNEL_PIVOTS = 1000, 200  # rows that pivots are chosen from, and how many
KERNEL_REST = 1e-3  # of a row's squared length: no pivot is added for less
KERNEL_WIDTH = 0.125  # squared, as a share of the median squared distance between rows

# The graph
NEIGHBOURS = 7
EDGE_POWER = 3  # of the cosine: the weight of an edge
PASSED_ON = 0.8  # the share of a label that is passed on from row to row
SPREADING_STEPS = 20
SAME = 1 - 1e-5  # the cosine above which two rows are copies

# The score of a row: log Z + PULL cos(x, prototype), mixed with those of its neighbours
PULL, MORE_PULL = 12.0, 4.0  # the second where refined prototypes take part
NEIGHBOURS_SHARE = 0.6  # the share of a score that comes from its neighbours, at most
NAMED_WEIGHT = 0.4  # how much a named stranger takes away, beside a label of a class
CROWDED, SINGLE = 0.3, 0.45  # correlation of score and density: strangers are crowds, or single
ROOMY = 20.0  # rows of the pile per class: with fewer, neighbours are of other classes too
GRAPH_STEPS = 3  # of refining prototypes
FOLDS = 5

# How members are expected to score, before a label is held out. At K labels per class:
BELOW, NEARER, DECLINE = 2.0, 0.5, 0.7  # neighbours of labels less 2 / K^0.7; or 1.5, if refined
USUAL_MEAN, USUAL_GROWTH = 3.0, 1.5  # if labels have no neighbours: 3 + 1.5 log K
LEAST_VARIANCE, MORE_VARIANCE = 4.0, 2.0  # 4 + 2 / K, and up to 6 if refined
MEAN_WORTH, VARIANCE_WORTH = 0.7, 20.0  # labels that this counts as: for each class; in all

# How members and strangers score
SKEW = 1.08  # members' tail towards strangers is this much wider than Student's
EMPIRICAL = 40  # held-out scores whose own quantile counts as much as Student's
STRANGER_VARIANCE, STRANGER_WORTH = 7.0, 10.0  # the prior, and the strangers that it counts as
ANCHOR = 0.3  # the strangers that a member's second-best score counts as
FAR, FARTHEST = 3.0, 6.0  # deviations from members to strangers, if nothing tells, and at most
EM_ROUNDS = 50
NORMAL_90 = 1.645  # standard deviations to either side that hold 90 % of a normal distribution

# How much graph and prototypes count in the class probabilities
CAUTION = 0.5  # of the weights 1 and PULL, by which rows were shared out
MOVES = np.array([0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])  # that held-out labels choose from
PULLS = np.array([0.0, 0.17, 0.33, 0.67, 1.0, 1.33, 2.0])
MOVES_SPREAD = 0.9  # in natural logarithms: how far labels are expected to move these two
ROUGHER = 0.015  # the share of edges parted by prototypes alone from which only the graph counts

# Whether the pile is used, and which labels are doubted
HARM, HARM_EACH = 4.0, 0.1  # held-out log-probability the pile may cost: in all, for each label
EVEN = 0.005  # a smaller gain of the log-probability is none
SURE = 0.7  # the probability of another class from which on a label is doubted

# The rule of a refiner
TEMPERATURE_SHARE = 0.055  # of the mean squared distance between prototypes
TEMPERATURE_SPREAD = 0.5  # in natural logarithms: how far labels are expected to move it
TRIAL = 1000  # of a larger pile, trials use evenly spaced rows, at least this many
PILE_WORTH = 10.0  # held-out labels that the pile's own estimate of members counts as
MEMBER_SPREAD = 2.3  # of members' scores, in the unit that STRANGER_VARIANCE is given in

# What to label next
CANDIDATES, SHOWN = 300, 300  # the most doubtful rows; rows that show how far rows lie apart
LOST = 0.1  # the share of members that score below the point where membership is most open
STEEP = 0.5  # log-odds of a stranger for each standard deviation below that point
CLOSE = 3  # two rows are the same question to the degree cos^3
COPY = 1e-3  # of the mean squared distance between rows: a nearer one is a copy
FIRST_ROWS = 1000  # of a pile without labels, that the first questions are chosen from
