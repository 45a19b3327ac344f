"""The catalogue: what is known of dumps and comparisons, and what is to be done, in a database.

    engine = open_engine(database_url(data_directory)); upgrade(engine)
    with writing(engine, durable=True) as session:
        comparison_id = create_comparison(session, golden, target, Options())  # a worker goes on from here
    with reading(engine) as session:
        comparison = get_comparison(session, comparison_id)  # its .state, .job, .findings, .counts
        for pair in slice_pairs_of(session, comparison_id):  # its .judgement.logits makes a token strip
            outline = load_outline(session, pair.id)  # which rows are bad, and where an error begins

| module        | what it is for                                                                         |
| ------------- | -------------------------------------------------------------------------------------- |
| `engine`      | `open_engine`, `reading`, `writing`                                                    |
| `migrate`     | `upgrade`, once when a process starts                                                  |
| `comparisons` | create, list, note, delete, restore, cancel, compare again (other rules); slice pairs  |
| `match_sets`  | what people decided of matches: versions, undo, redo; rename, delete, restore          |
| `editing`     | preview, suggestions and checks for match sets                                         |
| `outline`     | the shape of a whole tree, and what it is filtered by and searched for                 |
| `tree`        | rows, pairs of a row, what they were measured from, layers of all slices               |
| `dumps`       | indexed dumps, slices, nodes                                                           |
| `jobs`        | the queue between pages and workers: progress, cancel, who is alive                    |
| `results`     | what workers write                                                                     |
| `tables`      | the tables; `columns`: exact floats, hostile names, JSON; `codec`: records as JSON     |

Readers wait for nobody. Whatever a person made is written with `durable=True`.
"""
