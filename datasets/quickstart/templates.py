"""Texts of the word problems for generate.py, in English and Chinese, of the problems and of the evaluation set.

A template is (difficulty, text, formula, range of a, range of b, ...): the letters of the formula
are drawn from the ranges and stand in the text as {a}, {b}, {c}; {t} is a times b, {n} a name,
{o} a kind of thing, {p} a place. Evaluation templates carry no difficulty.
"""

NAMES = [
    "Mia", "Omar", "Lena", "Kofi", "Priya", "Jonas", "Aiko", "Rosa", "Tariq", "Elif", "Bruno", "Nadia",
    "Hugo", "Zara", "Ivan", "Chloe", "Samir", "Greta", "Pablo", "Wendy", "Felix", "Amina", "Oscar", "Leila",
]
THINGS = [
    "stickers", "marbles", "shells", "stamps", "buttons", "postcards", "beads", "coins", "badges", "pebbles",
    "crayons", "puzzles", "ribbons", "keys", "cards", "pencils",
]
NAMES_ZH = ["小明", "小红", "李华", "王芳", "张伟", "小丽", "陈晨", "刘洋", "赵敏", "周杰", "小刚", "吴婷", "孙悦", "林涛"]
THINGS_ZH = ["颗弹珠", "张邮票", "本故事书", "支彩笔", "个贝壳", "枚徽章", "块橡皮", "张卡片", "朵纸花", "个气球"]

WORDS_EN = [
    (2, "{n} has {a} {o}. A friend gives {n} {b} more {o}. How many {o} does {n} have now?", "a+b", (3, 12), (2, 9)),
    (2, "There were {a} birds on the roof. Then {b} of them flew away. How many birds stayed on the roof?", "a-b", (8, 19), (2, 7)),
    (2, "{n} packs {a} bags. Each bag gets {b} {o}. How many {o} are packed?", "a*b", (2, 9), (3, 10)),
    (3, "One ticket costs {a} dollars. {n} buys {b} tickets. How many dollars does {n} pay?", "a*b", (4, 12), (2, 7)),
    (4, "A baker makes {a} trays with {b} rolls each, and then {c} more rolls. How many rolls is that?", "a*b+c", (2, 6), (4, 9), (2, 9)),
    (3, "{n} shares {t} {o} equally among {b} children. How many {o} does each child get?", "a", (2, 9), (2, 6)),
    (3, "A bus carries {a} people. At the next stop {b} get off and {c} get on. How many people are on the bus?", "a-b+c", (12, 30), (2, 9), (2, 9)),
    (3, "{n} reads {a} pages on Monday and {b} pages on Tuesday. How many pages is that in all?", "a+b", (11, 40), (11, 40)),
    (2, "A spider has {a} legs. How many legs do {b} spiders have?", "a*b", (8, 8), (2, 9)),
    (4, "{n} had {a} dollars and spent {b} dollars on lunch. How many dollars are left?", "a-b", (20, 60), (6, 19)),
    (3, "A garden has {a} rows of {b} tulips. How many tulips grow there?", "a*b", (3, 12), (3, 12)),
    (4, "{n} earns {a} dollars an hour. After {b} hours {n} also gets a tip of {c} dollars. How many dollars is that?", "a*b+c", (5, 12), (2, 6), (2, 9)),
    (4, "A shop had {a} lamps. It sold {b} in the morning and {c} in the afternoon. How many lamps are unsold?", "a-b-c", (20, 40), (3, 9), (2, 8)),
    (3, "{n} walks {a} km every day. How far does {n} walk in {b} days?", "a*b", (2, 7), (3, 10)),
    (4, "A rope of {a} meters is cut, and {b} meters are used. Give the length in meters that remains.", "a-b", (25, 80), (11, 24)),
    (5, "A class has {a} girls and {b} boys. They form teams of {c}. How many teams are there?", "(a+b)/c", (6, 18), (6, 18), (2, 6)),
    (3, "{n} is {a} years old. How old will {n} be in {b} years?", "a+b", (6, 40), (3, 20)),
    (4, "A tank holds {a} liters. Every minute {b} liters flow out. How many liters are left after {c} minutes?", "a-b*c", (40, 90), (2, 7), (2, 6)),
    (3, "{n} scored {a} points in the first game and {b} in the second. What is the total score?", "a+b", (5, 30), (5, 30)),
    (5, "A jacket costs {a} dollars. It is sold at {b}% off. What is the new price in dollars?", "a-a*b/100", (40, 120), (10, 50)),
    (4, "{n} has {a} {o} and loses {b}. The rest go into {c} equal piles. How many {o} are in one pile?", "(a-b)/c", (12, 40), (2, 9), (2, 5)),
    (3, "Each week has 7 days. How many days are in {a} weeks and {b} days?", "7*a+b", (2, 6), (1, 6)),
]
WORDS_ZH = [
    (2, "{n}有{a}{o}，又买了{b}{o}。{n}现在一共有多少{o}？", "a+b", (3, 15), (2, 12)),
    (2, "树上有{a}只小鸟，飞走了{b}只，还剩下几只？", "a-b", (8, 20), (2, 7)),
    (3, "一盒铅笔有{a}支，{b}盒铅笔共有多少支？", "a*b", (4, 12), (2, 9)),
    (3, "{n}每天跑步{a}千米，{b}天能跑多少千米？", "a*b", (2, 6), (3, 9)),
    (4, "食堂运来{a}袋大米，每袋{b}千克，又运来{c}千克，总共多少千克？", "a*b+c", (2, 6), (5, 10), (3, 9)),
    (3, "公交车上原有{a}人，到站下车{b}人，上车{c}人，车上现有多少人？", "a-b+c", (15, 35), (2, 9), (2, 9)),
    (3, "{n}今年{a}岁，爸爸比{n}大{b}岁，爸爸今年多少岁？", "a+b", (6, 12), (22, 32)),
    (3, "教室里摆了{a}排椅子，每排{b}把，椅子的总数是多少？", "a*b", (3, 9), (4, 10)),
    (4, "{n}带了{a}元，买书花掉{b}元，口袋里还剩多少元？", "a-b", (20, 60), (5, 18)),
    (4, "一根绳子长{a}米，剪成每段{b}米，可以剪成几段？", "a/b", (12, 48), (2, 8)),
    (3, "果园里梨树有{a}棵，桃树的棵数是梨树的{b}倍，桃树有几棵？", "a*b", (6, 15), (2, 5)),
    (3, "第一组做了{a}面小旗，第二组做了{b}面，两组合起来做了多少面？", "a+b", (8, 30), (8, 30)),
    (5, "商店里一件衣服原价{a}元，现在打{b}折，现价是多少元？", "a*b/10", (40, 120), (5, 9)),
]

# The evaluation set speaks of other things than the problems, at greater length.
EVAL_EN = [
    ("During the harvest festival the mayor of {p} hung {a} paper lanterns over the bridge and {b} lanterns around the old fountain; what number of lanterns did the visitors see altogether?", "a+b", (12, 40), (11, 39)),
    ("A lighthouse keeper at {p} climbs a spiral staircase of {a} steps every evening, resting once after exactly {b} steps; calculate how many steps remain after the rest.", "a-b", (60, 99), (15, 45)),
    ("The museum of {p} displays meteorites in {a} glass cabinets, and a curator arranged {b} meteorites in every single cabinet; determine the size of the whole collection.", "a*b", (4, 9), (6, 12)),
    ("When the ferry left {p} it carried {a} cyclists, {b} hikers boarded at the second pier, and nobody went ashore; state the number of passengers aboard afterwards.", "a+b", (14, 48), (12, 40)),
    ("An astronomer near {p} photographed {a} comets each winter for {b} winters and later discovered {c} further comets in archives; how large is her comet catalogue?", "a*b+c", (3, 8), (3, 7), (2, 9)),
    ("Engineers in {p} tested {a} drones at dawn, {b} of those drones failed the wind test; report how many drones were approved for delivery flights.", "a-b", (30, 75), (8, 25)),
    ("The orchestra of {p} rehearses {a} hours on each weekday and {b} hours across the weekend; express the weekly rehearsal time of these musicians in hours.", "5*a+b", (2, 4), (3, 9)),
    ("A glacier research station close to {p} stores {t} ice cores in {b} identical freezers with equal loads; work out how many cores lie in one freezer.", "a", (6, 15), (3, 8)),
    ("Volunteers planted mangroves along the coast of {p}: {a} seedlings before noon, twice as many after noon; what was the count of seedlings at sunset?", "3*a", (15, 60), (1, 1)),
    ("A cinema in {p} sold {a} balcony seats for {b} dollars apiece during the silent film night; give the balcony revenue in dollars.", "a*b", (6, 12), (7, 12)),
    ("The beekeeper of {p} collected {a} jars of heather honey, kept {b} jars for the village fair, then delivered {c} jars to a bakery; how many jars did she still own?", "a-b-c", (40, 70), (8, 19), (5, 16)),
    ("Inside the clock tower of {p} a restorer replaced {a} brass gears per week over {b} weeks; compute the quantity of gears that were replaced in that period.", "a*b", (5, 11), (4, 9)),
]
EVAL_PLACES = ["Aldermoor", "Brightwater", "Castlefen", "Dunmarsh", "Eastholm", "Fernvale", "Gullhaven", "Highcombe", "Ivybridge", "Juniper Bay", "Kestrel Rock", "Larkfield"]
EVAL_ZH = [
    ("航天馆里陈列着{a}枚火箭模型，另外{b}枚正在修复，馆藏火箭模型合计是多少枚？", "a+b", (12, 40), (5, 18)),
    ("考古队在沙漠遗址清理出{a}件陶罐，其中{b}件已经破损，完好的陶罐是几件？", "a-b", (30, 70), (8, 25)),
    ("茶农采摘龙井，清晨装满{a}筐，每筐重{b}千克，清晨采摘的茶叶重多少千克？", "a*b", (4, 9), (6, 12)),
    ("龙舟赛共有{a}条船参加，每条船坐{b}名桨手，外加{c}名裁判，参赛人员总计几名？", "a*b+c", (3, 7), (8, 12), (3, 9)),
    ("灯塔守护员要登{a}级台阶，歇脚以前登了{b}级，余下的台阶是多少级？", "a-b", (60, 99), (15, 45)),
    ("剧院二楼设{a}个包厢，每个包厢容纳{b}位观众，二楼最多容纳几位观众？", "a*b", (5, 12), (4, 8)),
]
EVAL_SHORT = [("What is {a} + {b}?", "a+b", (17, 78), (12, 21)), ("Compute {a} * {b}.", "a*b", (13, 24), (3, 9)), ("What is {a} - {b}?", "a-b", (70, 99), (11, 38))]

# Long texts that differ in one number only, at their first or last word: alike, yet another problem.
TWINS = [
    ("en", "{a} dollars were in the jar that Nora keeps for her holiday, and last night she took out 8 dollars to pay for a kite; how many dollars does the jar hold?", "a-8", (31, 47)),
    ("en", "Every shelf in the village library carries the same number of atlases, namely 9, and the librarian wants to know the number of atlases for a count of shelves equal to {a}", "9*a", (6, 11)),
    ("zh", "{a}位同学报名参加学校春天的植树活动，后来又有6位同学临时加入，参加植树活动的同学最后是多少位？", "a+6", (18, 25)),
]

# Eval texts whose numbers stand so close that no ten tokens in a row are free of one.
EVAL_TWINS = [
    ("In {p}, {a} potters each shaped {b} bowls a day, for {c} days, before {d} bowls cracked; how many whole bowls?", "a*b*c-d", (4, 7, 3, 5), (3, 6, 2, 9)),
    ("Captain Vega counted {a} whales, then {b} seals and {c} otters, but only {d} turtles; how many animals were counted?", "a+b+c+d", (12, 9, 5, 3), (7, 15, 8, 2)),
    ("钟楼有{a}层，每层{b}扇窗，关上{c}扇，开着几扇？", "a*b-c", (6, 8, 11), (5, 9, 13)),
]
